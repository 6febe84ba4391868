"""What runs on a worker of the cluster: one search, and the board where all of them tell how far they are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stages.schedule.draft import Draft
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.evolution import OperatorCount
from stages.schedule.solvers import SOLVERS


@dataclass(frozen=True)
class Shared:
    """What all searches are given alike."""

    solver: str
    problem: Problem
    budget: Budget
    without: frozenset[str]
    warm: tuple[Draft, ...]


@dataclass(frozen=True)
class Told:
    """How far a search is: plans evaluated, and the best plan so far with its cost."""

    evaluations: int = 0
    cost: float | None = None
    draft: Draft | None = None


@dataclass(frozen=True)
class Found:
    """How a search ended. ``nearest``: the plan nearest to fitting, while none fits."""

    told: Told
    nearest: Draft | None
    operators: dict[str, OperatorCount]
    cpu_seconds: float


class Board:
    """The last word of every search. An actor: searches write, the driver reads."""

    def __init__(self) -> None:
        self._last: dict[int, Told] = {}

    def tell(self, number: int, told: Told) -> None:
        self._last[number] = told

    def read(self) -> dict[int, Told]:
        return self._last


def search_alone(shared: Shared, number: int, seed: int, slot: int, board: Any) -> Found:
    """Search with a seed on one core, the ``slot``-th of this machine. The clock starts when everything is compiled or loaded."""
    with _one_core(slot):
        board.tell.remote(number, Told())
        solver = SOLVERS[shared.solver]
        solver.ready(shared.problem)

        def tell(done: float, total: float, best: float | None) -> None:
            board.tell.remote(number, _told(evaluator))

        evaluator = Evaluator(shared.problem, shared.budget, on_progress=tell, without=shared.without)
        began = time.process_time()
        report = solver.search(evaluator, seed, shared.warm)
        return Found(_told(evaluator), evaluator.nearest_draft, report.operators, time.process_time() - began)


def _told(evaluator: Evaluator) -> Told:
    return Told(evaluator.evaluations, evaluator.best.cost if evaluator.best else None, evaluator.best_draft)


@contextmanager
def _one_core(slot: int) -> Iterator[None]:
    """Solvers use every core they may: here each has one, and its neighbours the others."""
    cores: Sequence[int] = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[slot % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
