"""A process that gets ready to run verl's agent loop while the driver is still busy starting everything else.

verl's own actor imports verl when it is created, after the workers are up and with nothing else left to do: several seconds on one core.
This module imports nothing of verl, so the actor can be created first thing; it imports then.
"""

from __future__ import annotations

import asyncio
from typing import Any


class AgentLoopHost:
    """A Ray actor around :class:`agent_loop.ScoringAgentLoopWorker`; ``start`` once, then used like the worker."""

    def __init__(self) -> None:
        from stages.train.engines.verl.agent_loop import ScoringAgentLoopWorker

        self._make = ScoringAgentLoopWorker
        self._worker: Any = None

    async def start(self, *args: Any) -> None:
        self._worker = self._make(*args)

    async def generate_sequences(self, batch: Any) -> None:
        await self._worker.generate_sequences(batch)

    async def hold(self) -> None:
        """Never answers: a call that ends tells the caller that this process died."""
        await asyncio.Event().wait()

    async def take_score_seconds(self) -> float:
        return await self._worker.take_score_seconds()
