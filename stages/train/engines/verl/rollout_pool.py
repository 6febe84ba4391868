"""The rollout's servers on devices of their own, as the plan places them."""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.router import get_router_handle

from stages.train.engines.verl.placement import PoolSpec
from stages.train.engines.verl.pools import PinnedPool


class RolloutPool(LLMServerManager):
    """verl's manager over the plan's replicas; ``groups``: a placement group for each device of ``spec``; ``router``: its settings."""

    def __init__(self, config: Any, spec: PoolSpec, groups: list[Any], router: str) -> None:
        from stages.train.engines.verl.vllm_replica import VllmReplica

        shards = config.actor_rollout_ref.rollout.tensor_model_parallel_size
        self._pools = [PinnedPool(PoolSpec(f"{spec.name}-{first // shards}", spec.devices[first : first + shards], spec.roles),
                                  groups[first : first + shards]) for first in range(0, len(spec.devices), shards)]
        self._router = router
        self._make = VllmReplica
        self.rollout_replica_class: Any = self._replica  # verl calls it once a replica
        super().__init__(config=config)

    def _replica(self, *, replica_rank: int, **arguments: Any) -> Any:
        return self._make(replica_rank=replica_rank, pool=self._pools[replica_rank], **arguments)

    async def _init_global_load_balancer(self) -> None:
        servers = dict(zip(self.server_addresses, self.server_handles, strict=True))
        self.global_load_balancer = get_router_handle(servers=servers, router_config_path=self._router)
