"""The baseline that anything must beat: uniform over plans.

Every arrangement is equally likely: a grouping, which devices each group takes in which order, which stay idle. Given the arrangement,
every cut of a group and every degree of rollout is equally likely. What does not fit is drawn and rejected.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import log

from stages.schedule.draft import Cut, Draft
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import Grouping, cuts, draft_group, groupings, mask_of, rollout_tps

MISSES = 1_000_000
"""Draws in a row that were no plan: there is none to be found this way."""
WARM_UP = 200

Arrangement = tuple[Grouping, list[tuple[int, ...]]]


def random_search(evaluator: Evaluator, *, seed: int) -> SearchReport:
    """Draw plans until the budget is spent; the evaluator holds the best."""
    for draft in random_plans(evaluator.problem, random.Random(seed)):
        if evaluator.left() <= 0:
            break
        if draft is not None:
            evaluator.plan(draft)
    return SearchReport(arms=[], operators={})


def random_plans(problem: Problem, rng: random.Random) -> Iterator[Draft | None]:
    """Plans drawn one by one, fitting or not; None for a draw that was no plan. Ends where none is to be found this way."""
    arrangements = Arrangements(problem, rng)
    misses = 0
    while arrangements.groupings and misses < MISSES:
        draft = _cut(problem, arrangements.draw(), rng)
        misses = misses + 1 if draft is None else 0
        yield draft


class Arrangements:
    """Draws groupings with ordered devices, each equally likely.

    A grouping is chosen uniformly, then devices are inserted one by one at a place chosen uniformly (idleness is one place): that finds an
    arrangement with probability 1/Π places. It is accepted in proportion to Π places, relative to the largest product seen (in a warm-up
    first).
    """

    def __init__(self, problem: Problem, rng: random.Random) -> None:
        self.groupings, self._rng = groupings(problem), rng
        self._able = {
            grouping: [[g for g, mask in enumerate(masks) if mask[d]] for d in range(problem.fleet.size)]
            for grouping in self.groupings
            for masks in [[mask_of(problem, tasks).tolist() for tasks in grouping]]
        }
        self._largest = max((self._propose()[0] for _ in range(WARM_UP)), default=0.0) if self.groupings else 0.0

    def draw(self) -> Arrangement | None:
        """An arrangement; None where one was rejected or a group is empty."""
        weight, grouping, dealt = self._propose()
        self._largest = max(self._largest, weight)
        if not all(dealt) or log(1.0 - self._rng.random()) > weight - self._largest:
            return None
        return grouping, [tuple(mine) for mine in dealt]

    def _propose(self) -> tuple[float, Grouping, list[list[int]]]:
        grouping = self._rng.choice(self.groupings)
        dealt: list[list[int]] = [[] for _ in grouping]
        weight = 0.0
        for device, able in enumerate(self._able[grouping]):
            places = 1 + sum(len(dealt[g]) + 1 for g in able)
            weight += log(places)
            place = self._rng.randrange(places)
            for g in able:
                if place <= len(dealt[g]):
                    dealt[g].insert(place, device)
                    break
                place -= len(dealt[g]) + 1
        return weight, grouping, dealt


def _cut(problem: Problem, arrangement: Arrangement | None, rng: random.Random) -> Draft | None:
    """A cut for every group of an arrangement; None where there is none."""
    if arrangement is None:
        return None
    drafts = []
    for tasks, devices in zip(*arrangement, strict=True):
        tps = rollout_tps(problem, len(devices)) if "rollout" in tasks else [0]
        choices: tuple[Cut | None, ...] = (None,) if tasks == ("rollout",) else cuts(problem, tasks, devices, thorough=True)
        if not choices or not tps:
            return None
        drafts.append(draft_group(problem, tasks, devices, rng.choice(choices), rng.choice(tps)))
    return Draft(groups=tuple(drafts))
