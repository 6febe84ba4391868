"""The actor's weights to a rollout that has devices of its own, through Ray's object store: for machines without NCCL.

verl loads this module by name (``checkpoint_engine.custom_backend_module``) in every process that sends or receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ray
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

from stages.train.engines.verl.names import WEIGHTS_BACKEND


@CheckpointEngineRegistry.register(WEIGHTS_BACKEND)
class ObjectStoreWeights(CheckpointEngine):
    """Every rank of the actor takes part in gathering; the first puts the whole and tells each rollout worker where it is."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._sends = is_master
        self._receivers: list[Any] = []
        self._inbox: asyncio.Queue[list[tuple[str, Any]]] = asyncio.Queue()

    def prepare(self) -> dict[str, Any]:
        return {"worker": ray.get_runtime_context().current_actor}

    @classmethod
    def build_topology(cls, actor_wg_world_size: int, rollout_world_size: int,
                       metadata: list[dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        receivers = [found["worker"] for found in metadata[actor_wg_world_size:]]
        return {"receivers": [receivers] * actor_wg_world_size}, {"receivers": [[]] * rollout_world_size}

    def init_process_group(self, *, receivers: list[Any], **_: Any) -> None:  # type: ignore[override]
        self._receivers = receivers

    def finalize(self) -> None:
        self._receivers = []

    def take(self, weights: list[tuple[str, Any]]) -> None:
        self._inbox.put_nowait(weights)

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, Any]:
        gathered = []
        async for name, tensor in ensure_async_iterator(weights):  # gathering a tensor is a collective: every rank reads to the end
            if self._sends:
                gathered.append((name, tensor.detach().cpu().clone()))
        if self._sends:
            held = ray.put(gathered)
            # In a list, so that Ray passes the reference on and the receiver fetches the object once a node.
            await asyncio.gather(*[worker.take_weights.remote([held]) for worker in self._receivers])
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, Any]]:  # type: ignore[override]
        for name, tensor in await self._inbox.get():
            yield name, tensor
