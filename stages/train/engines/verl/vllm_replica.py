"""A replica of verl's own vLLM rollout on the devices of the plan. Importing this imports vLLM."""

from __future__ import annotations

from typing import Any

import ray
from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
from verl.utils.device import get_device_name
from verl.workers.rollout.replica import RolloutMode
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

from stages.train.engines.verl.names import SEATS
from stages.train.engines.verl.pools import PinnedPool
from stages.train.engines.verl.rollout_worker import RolloutWorker
from stages.train.engines.verl.vllm_host import VllmServerHost


class VllmReplica(vLLMReplica):
    """A replica whose workers are those of the plan: some of the actor's where it shares their devices, else its own."""

    def __init__(self, *args: Any, pool: PinnedPool | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pool = pool
        server: Any = ray.remote(num_cpus=0)(VllmServerHost)
        self.server_class = server

    async def init_hybrid(self, worker_group: RayWorkerGroup) -> None:
        self.rollout_mode = RolloutMode.HYBRID
        custom: Any = self.config.custom
        rank_of_seat = {seat: rank for rank, seat in enumerate(custom[SEATS])}
        first = self.replica_rank * self.world_size
        self.workers = [worker_group.workers[rank_of_seat[first + shard]] for shard in range(self.world_size)]
        await self.launch_servers()

    async def init_standalone(self) -> None:
        self.rollout_mode = RolloutMode.STANDALONE
        assert self._pool is not None
        self.resource_pool = self._pool
        self.worker_group = RayWorkerGroup(resource_pool=self._pool, ray_cls_with_init=self.get_ray_class_with_init_args(), bin_pack=False,
                                           name_prefix=f"rollout_{self.replica_rank}", use_gpu=True, device_name=get_device_name())
        self.workers = self.worker_group.workers
        await self.launch_servers()

    def get_ray_class_with_init_args(self) -> RayClassWithInitArgs:
        return RayClassWithInitArgs(cls=ray.remote(RolloutWorker), rollout_config=self.config, model_config=self.model_config,
                                    replica_rank=self.replica_rank)
