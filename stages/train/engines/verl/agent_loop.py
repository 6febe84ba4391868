"""verl's agent loop with the rule reward computed where the responses arrive: one process less to start, nothing sent twice.

A reward model scores whole batches later, in workers of its own (:mod:`reward`); nothing is scored here then.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

_decorated: Any = AgentLoopWorkerTQ
_Worker: Any = _decorated.__ray_actor_class__


class _LocalScore:
    """Stands where verl expects a method of a remote reward worker; counts the seconds in which anything is being scored."""

    def __init__(self, worker: RewardLoopWorker) -> None:
        self._worker = worker
        self._running = 0
        self._since = 0.0
        self.seconds = 0.0

    async def remote(self, data: Any) -> Any:
        if self._running == 0:
            self._since = time.monotonic()
        self._running += 1
        try:
            return await self._worker.compute_score(data)
        finally:
            self._running -= 1
            if self._running == 0:
                self.seconds += time.monotonic() - self._since


class _LocalRewardWorker:
    def __init__(self, worker: RewardLoopWorker) -> None:
        self.compute_score = _LocalScore(worker)


class ScoringAgentLoopWorker(_Worker):
    """An agent loop worker that scores its own responses."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        given: Any = self.reward_loop_worker_handles  # type: ignore[has-type]
        self._scorer = None if given is None else _LocalRewardWorker(RewardLoopWorker(config))
        self.reward_loop_worker_handles = None if self._scorer is None else [self._scorer]

    async def take_score_seconds(self) -> float:
        """Seconds spent scoring since the last call."""
        if self._scorer is None:
            return 0.0
        score = self._scorer.compute_score
        seconds, score.seconds = score.seconds, 0.0
        return seconds


class HostedAgentLoopManager(AgentLoopManagerTQ):
    """One agent loop worker, in an actor that is there already (:mod:`agent_host`)."""

    def __init__(self, *args: Any, host: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._host = host

    async def _init_agent_loop_workers(self) -> None:
        await self._host.start.remote(self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles)
        self.agent_loop_workers = [self._host]

    def take_score_seconds(self) -> float:
        return sum(ray.get([worker.take_score_seconds.remote() for worker in self.agent_loop_workers]))
