"""verl's side of the small rollout server: a replica a rank, beside the rank, and the hand-over of weights."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica
from verl.workers.rollout.utils import ensure_async_iterator

from stages.train.engines.verl.hf_server import HfServer


def server_name(replica: int) -> str:
    return f"hetrl_hf_{replica}"


def _own_placement_group(_: Any) -> Any:
    return ray.util.get_current_placement_group()


class HfReplica(RolloutReplica):
    """One server in the placement group of the rank it samples for: same machine, same device."""

    async def launch_servers(self) -> None:
        group = await self.workers[0].__ray_call__.remote(_own_placement_group)
        server = (
            ray.remote(HfServer)
            .options(
                num_cpus=0,
                name=server_name(self.replica_rank),
                max_concurrency=self.max_concurrency,
                scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=0),
            )
            .remote(
                model_path=str(self.model_config.path),
                replica=self.replica_rank,
                seed=int(self.config.seed),
                response_tokens=int(self.config.response_length),
                max_sequences=int(self.config.max_num_seqs),
            )
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = await server.address.remote()


class HfServerAdapter(BaseRollout):
    """In the training worker: sends the actor's weights to the server of this rank after every update."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        self._replica = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self._server: Any = None

    async def resume(self, tags: list[str]) -> None:
        return None

    async def release(self) -> None:
        return None

    async def update_weights(self, weights: Any, wire_format: str = "named_tensors", *, global_steps: int | None = None, **_: Any) -> None:
        if self._server is None:
            self._server = ray.get_actor(server_name(self._replica))
        # Gathering a tensor is a collective: every rank reads the iterator to its end.
        named = [(name, tensor.detach().float().cpu().clone()) async for name, tensor in ensure_async_iterator(weights)]
        await self._server.load_weights.remote(named, global_steps)
