"""All that differs between a run on CPUs and one on GPUs, as verl is told it. The rest of the engine is one code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stages.train.engines.verl.names import WEIGHTS_BACKEND, WEIGHTS_MODULE


@dataclass(frozen=True)
class Platform:
    """What verl is told.

    ``attention``: Megatron's backend. ``remove_padding``, ``sequence_parallel`` (with shards only): what its layers can do.
    ``rollout_dtype``, ``graphs``: vLLM's precision, and whether it records graphs. ``sleeps``: whether a rollout beside the actor gives its
    memory back while the actor trains. ``weights_backend``, ``weights_module``: the way to a rollout apart, and the module that knows it.
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


CPU = Platform(device="cpu", attention="local", remove_padding=False, sequence_parallel=False, rollout_dtype="float32", graphs=False,
               sleeps=False, weights_backend=WEIGHTS_BACKEND, weights_module=WEIGHTS_MODULE)
GPU = Platform(device="cuda", attention="flash", remove_padding=True, sequence_parallel=True, rollout_dtype="bfloat16", graphs=True,
               sleeps=True, weights_backend="nccl", weights_module=None)


def platform_of(vendors: Iterable[str]) -> Platform:
    """The platform of devices of these vendors; the catalogue refuses a mixture of CPUs and GPUs before."""
    return CPU if set(vendors) == {"cpu"} else GPU
