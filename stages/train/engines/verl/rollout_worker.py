"""The worker beside each shard of a rollout that has devices of its own: takes the actor's weights and hands them to the server."""

from __future__ import annotations

from typing import Any

from verl.checkpoint_engine.base import CheckpointEngineWorker
from verl.single_controller.base.decorator import Dispatch, register

from stages.train.engines.verl.placement import here

_modes: Any = Dispatch  # filled when verl is imported, so its members have no static names


class RolloutWorker(CheckpointEngineWorker):
    checkpoint_engine: Any

    @register(dispatch_mode=_modes.ONE_TO_ALL)
    def hetrl_placement(self) -> dict[str, Any]:
        return here()

    async def take_weights(self, weights: list[Any]) -> None:
        """Called by the actor's first rank (:mod:`weights`)."""
        self.checkpoint_engine.take(await weights[0])
