"""What an exact method says, and what both of them ask of the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.iteration import compose
from stages.schedule.exact.cells import Cells
from stages.schedule.exact.column import Column
from stages.schedule.exact.floors import combine
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Budget, Evaluator

TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Outcome:
    """The best choice of columns found (None: none up to the cut-off) and its iteration time; no choice is below ``bound_s``.

    ``finished``: the method came to its end, so that the choice is the best, or none exists up to the cut-off. ``rounds``: runs of the
    solver, or nodes.
    """

    chosen: list[Column] | None
    objective_s: float
    bound_s: float
    finished: bool
    rounds: int


class Updates:
    """Seconds of weight updates, priced when first asked for."""

    def __init__(self, problem: Problem, cells: Cells) -> None:
        self._problem, self._cells = problem, cells
        self._known: dict[tuple[object, ...], float] = {}

    def seconds(self, actor: Column, rollout: Column) -> float:
        if actor is rollout:
            return actor.update_s
        key = (actor.footprint, rollout.footprint, actor.vector, rollout.vector)
        if key not in self._known:
            self._known[key] = self._priced(actor, rollout)
        return self._known[key]

    def _priced(self, actor: Column, rollout: Column) -> float:
        """Between two groups, each on devices of its own. 0 where they do not fit side by side."""
        if any(a + b > n for a, b, n in zip(actor.vector, rollout.vector, self._cells.counts, strict=True)):
            return 0.0
        devices = self._cells.placed([actor.draft.devices, rollout.draft.devices])
        pricing = Evaluator(self._problem, Budget(evaluations=2))
        prices = [pricing.group(replace(c.draft, devices=d)) for c, d in zip((actor, rollout), devices, strict=True)]
        return compose(self._problem, [p for p in prices if p is not None]).weight_update_s

    def iteration(self, chosen: Sequence[Column]) -> float:
        """The iteration time of a choice, weight update included."""
        phases = [max(c.seconds[at] for c in chosen) for at in range(3)]
        actor, rollout = (next(c for c in chosen if task in c.draft.tasks) for task in ("actor_training", "rollout"))
        return float(combine(self._problem, phases)) + self.seconds(actor, rollout)


def host_limits(problem: Problem) -> NDArray[np.float64]:
    """Bytes of each machine's own memory that a plan may use."""
    fleet = problem.fleet
    have = np.maximum(fleet.host_memory_bytes.astype(float), 1.0)
    return have * (1 - problem.engine.memory.reserve + 1e-6)  # type: ignore[no-any-return]
