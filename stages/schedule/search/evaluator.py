"""Counts, remembers and judges: every price the search asks for goes through here, under one budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from artifacts.search import Point
from stages.schedule.cost.iteration import GroupPrice, PlanPrice, compose, price_group
from stages.schedule.draft import Draft, GroupDraft
from stages.schedule.problem import Problem

TOO_MANY = 1e3
"""Lack of memory, relative to the device's, that twice the devices allowed count as."""


@dataclass(frozen=True)
class Budget:
    """Evaluations (deterministic with a seed), or seconds when given."""

    evaluations: int
    seconds: float | None = None


@dataclass(eq=False)
class Evaluator:
    """Prices plans and groups. An evaluation is one plan or one group judged, remembered or not; both solvers pay the same."""

    problem: Problem
    budget: Budget
    on_progress: Callable[[float, float, float | None], None] = lambda done, total, best: None
    without: frozenset[str] = frozenset()
    """Parts of the solver that are switched off."""
    evaluations: int = 0
    best: PlanPrice | None = None
    best_draft: Draft | None = None
    best_full: float | None = None
    """Best cost among feasible plans that leave no usable device idle."""
    nearest: PlanPrice | None = None
    """The plan nearest to fitting, while none fits."""
    nearest_draft: Draft | None = None
    trajectory: list[Point] = field(default_factory=list)
    improved: list[Draft] = field(default_factory=list)
    """The plans of the trajectory."""
    known: set[Draft] = field(default_factory=set)
    """Plans judged so far."""
    _groups: dict[GroupDraft, GroupPrice | None] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)
    _reported: float = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def left(self) -> float:
        """Evaluations left; under a budget of seconds, an estimate from the pace so far."""
        if self.budget.seconds is None:
            return float(self.budget.evaluations - self.evaluations)
        remaining = self.budget.seconds - self.seconds
        if remaining <= 0:
            return 0.0
        pace = self.evaluations / self.seconds if self.evaluations >= 50 else 500.0
        return max(1.0, remaining * pace)

    def group(self, draft: GroupDraft, *, count: bool = True) -> GroupPrice | None:
        """Price a group; None where it cannot be laid out."""
        if count:
            self._count()
        if draft not in self._groups:
            self._groups[draft] = price_group(self.problem, draft)
        return self._groups[draft]

    def plan(self, draft: Draft) -> PlanPrice | None:
        """Price a plan and remember it if it is the best so far; None where a group cannot be laid out."""
        self._count()
        self.known.add(draft)
        groups = [self.group(g, count=False) for g in draft.groups]
        made = [g for g in groups if g is not None]
        if len(made) < len(groups):
            return None
        price = compose(self.problem, made)
        used = sum(len(g.memory.devices) for g in price.groups)
        most = self.problem.most_devices
        if used > most:  # behind every plan within the limit, the more the further over it
            return replace(price, overflow=price.overflow + TOO_MANY * (used / most - 1))
        if price.feasible:
            self._consider(draft, price, used)
        elif self.nearest is None or price.cost < self.nearest.cost:
            self.nearest, self.nearest_draft = price, draft
        return price

    def _consider(self, draft: Draft, price: PlanPrice, used: int) -> None:
        everything = self.problem.fleet.size - len(self.problem.excluded)
        if used == everything and (self.best_full is None or price.cost < self.best_full):
            self.best_full = price.cost
        if self.best is None or price.cost < self.best.cost * (1 - 1e-9):
            self.best, self.best_draft = price, draft
            self.improved.append(draft)
            self.trajectory.append(Point(evaluations=self.evaluations, seconds=round(self.seconds, 4), cost_s=price.cost))

    def _count(self) -> None:
        self.evaluations += 1
        if self.evaluations % 20 == 0:
            self.report()

    def report(self) -> None:
        """Tell how far the search is, twice a second at most; the listener may raise, which ends the search."""
        if self.seconds - self._reported > 0.5:
            self._reported = self.seconds
            in_seconds = self.budget.seconds is not None
            self.on_progress(
                self.seconds if in_seconds else self.evaluations,
                self.budget.seconds or self.budget.evaluations,
                self.best.cost if self.best else None,
            )
