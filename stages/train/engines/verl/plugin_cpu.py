"""Loaded by verl itself, in every process that imports verl (``VERL_USE_EXTERNAL_MODULES``): the CPU platform and the rollout server.

Megatron's part waits until a training worker asks for it (:func:`load_megatron`): only workers need it.
"""

from __future__ import annotations

from stages.train.engines.verl import platform_cpu  # first: what follows asks verl for its platform  # isort: skip

from verl.workers.rollout import base as rollout_base
from verl.workers.rollout import replica as rollout_replica

ROLLOUT = "hetrl_hf"


def _replica() -> type:
    from stages.train.engines.verl.rollout_hf import HfReplica

    return HfReplica


platform_cpu.use_gloo()
rollout_base._ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "stages.train.engines.verl.rollout_hf.HfServerAdapter"
rollout_replica.RolloutReplicaRegistry.register(ROLLOUT, _replica)


def load_megatron() -> None:
    from stages.train.engines.verl import megatron_cpu

    megatron_cpu.apply()
