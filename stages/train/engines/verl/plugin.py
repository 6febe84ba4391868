"""Loaded by verl, in every process that imports verl (``VERL_USE_EXTERNAL_MODULES``): the rollout's servers, as the plan places them.

On CPUs :mod:`plugin_cpu` is loaded instead, which loads this.
"""

from __future__ import annotations

from verl.workers.rollout import base as rollout_base
from verl.workers.rollout import replica as rollout_replica

from stages.train.engines.verl.names import HF_SERVER


def _hf_replica() -> type:
    from stages.train.engines.verl.rollout_hf import HfReplica

    return HfReplica


def _vllm_replica() -> type:
    from stages.train.engines.verl.vllm_replica import VllmReplica

    return VllmReplica


for _name, _adapter, _replica in (
    (HF_SERVER, "stages.train.engines.verl.rollout_hf.HfServerAdapter", _hf_replica),
    ("vllm", "stages.train.engines.verl.vllm_adapter.VllmAdapter", _vllm_replica),
):
    rollout_base._ROLLOUT_REGISTRY[(_name, "async")] = _adapter
    rollout_replica.RolloutReplicaRegistry.register(_name, _replica)


def load_megatron() -> None:
    """What a training worker needs of Megatron besides."""
    from stages.train.engines.verl import tied, uneven

    uneven.apply()
    tied.apply()
