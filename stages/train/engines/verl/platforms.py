"""All that differs between a run on CPUs and one on GPUs, as verl is told it. The rest of the engine is one code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from stages.train.engines.verl.names import WEIGHTS_BACKEND, WEIGHTS_MODULE


@dataclass(frozen=True)
class Platform:
    """What verl is told.

    ``attention``: Megatron's backend. ``remove_padding``, ``sequence_parallel`` (with shards only): what its layers can do.
    ``rollout_dtype``, ``graphs``: vLLM's precision, and whether it records graphs. ``sleeps``: whether a rollout beside the actor gives its
    memory back while the actor trains. ``weights_backend``, ``weights_module``: the way to a rollout apart, and the module that knows it.
    ``plugin``: our module that verl loads; ``variables``: environment of every process, besides what all platforms have.
    """

    device: str
    attention: str
    remove_padding: bool
    sequence_parallel: bool
    rollout_dtype: str
    graphs: bool
    sleeps: bool
    weights_backend: str
    weights_module: str | None
    plugin: str
    variables: dict[str, str]


CPU = Platform(device="cpu", attention="local", remove_padding=False, sequence_parallel=False, rollout_dtype="float32", graphs=False,
               sleeps=False, weights_backend=WEIGHTS_BACKEND, weights_module=WEIGHTS_MODULE, plugin="stages.train.engines.verl.plugin_cpu",
               variables={"VERL_PLATFORM": "cpu", "TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"})
GPU = Platform(device="cuda", attention="flash", remove_padding=True, sequence_parallel=True, rollout_dtype="bfloat16", graphs=True,
               sleeps=True, weights_backend="nccl", weights_module=None, plugin="stages.train.engines.verl.plugin",
               variables={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})  # Megatron's tensor parallelism asks for it


def platform_of(vendors: Iterable[str]) -> Platform:
    """The platform of devices of these vendors; the catalogue refuses a mixture of CPUs and GPUs before."""
    return CPU if set(vendors) == {"cpu"} else GPU


def on_cpu() -> bool:
    """Whether this process belongs to a run on CPUs, by its environment."""
    return os.environ.get("VERL_PLATFORM") == "cpu"
