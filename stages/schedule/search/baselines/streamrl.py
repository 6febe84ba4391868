"""``streamrl``: two groups, generation and the rest (Zhong et al., 2025), each treated as a homogeneous cluster.

The groups are split along boundaries of data centres (a zone of a region); in one data centre by type of device. How many devices each
gets is found by enumeration, and likewise the degrees inside a group; layers and batches are equal. Made for asynchronous training; in
synchronous mode the groups wait for each other.

The phases of a plan are those of its two sides, so the enumeration goes by what the sides could take at best (their devices' speed added
up, nothing communicated), and ends where that is no less than the best plan found: what is left out could not have been it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import numpy as np

from artifacts.errors import InputError
from stages.schedule.draft import Draft, GroupDraft
from stages.schedule.exact.floors import combine, works_of
from stages.schedule.problem import Problem
from stages.schedule.search.baselines.mean_device import degrees_of
from stages.schedule.search.construct import score
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import Grouping, draft_group, groupings, mask_of

Line = tuple[tuple[int, ...], tuple[int, ...]]
"""Devices generation and the rest may have, each in the order they are taken."""
Phases = tuple[float, float, float]
MOST_PLACES = 10
"""Data centres of which every combination is tried; beyond that each alone against all others."""


def streamrl(evaluator: Evaluator) -> SearchReport:
    """Enumerate splits, the more promising first, until no other can be better or out of budget. Layers and batches are equal.

    Raises:
        InputError: the engine cannot run generation apart from the rest.
    """
    problem = evaluator.problem
    grouping: Grouping = (("rollout",), tuple(t.name for t in problem.tasks if t.name != "rollout"))
    if tuple(sorted(grouping)) not in {tuple(sorted(g)) for g in groupings(problem)}:
        raise InputError(
            f"solver streamrl puts rollout and the rest in two groups, which {problem.engine.engine} with rollout "
            f"{problem.engine.rollout_server} and this job's constraints do not allow",
            fix="use solver auto, or drop the constraint that keeps them together",
        )
    sides = Sides(evaluator, grouping)
    for floor, split in _splits(sides, list(_lines(problem, grouping))):
        best = evaluator.best
        if evaluator.left() <= 0 or (best is not None and floor >= best.iteration_s):
            break
        groups: list[GroupDraft] = []
        for number, devices in enumerate(split):
            limit = best.iteration_s if best is not None else np.inf
            known = sides.seconds(split)
            made = sides.best(number, devices) if known < limit else None
            groups += [made] if made is not None else []
        if len(groups) == len(split):
            evaluator.plan(Draft(groups=tuple(groups)))
    return SearchReport(arms=[], operators={})


class Sides:
    """What generation and the rest take on sets of devices: at best, until it is known."""

    def __init__(self, evaluator: Evaluator, grouping: Grouping) -> None:
        self._evaluator, self.problem, self._grouping = evaluator, evaluator.problem, grouping
        fleet = self.problem.fleet
        speed = np.array([c.best for c in fleet.curves])[fleet.device_class]
        self._rates = {}
        for task in self.problem.tasks:
            for w in works_of(self.problem, task):
                factor = self.problem.factors(w.factor_of)
                self._rates[w] = speed / factor, fleet.hbm_bytes_per_s / factor
        self._floors: dict[tuple[int, tuple[int, ...]], Phases] = {}
        self._best: dict[tuple[int, tuple[int, ...]], tuple[GroupDraft | None, Phases]] = {}

    def seconds(self, split: Sequence[tuple[int, ...]]) -> float:
        """Of an iteration, as far as the sides are known; infinite where one is known not to fit."""
        phases = [self._phases(number, tuple(sorted(devices))) for number, devices in enumerate(split)]
        return float(combine(self.problem, [sum(p[x] for p in phases) for x in range(3)]))

    def _phases(self, number: int, devices: tuple[int, ...]) -> Phases:
        key = number, devices
        if key in self._best:
            return self._best[key][1]
        if key not in self._floors:
            found, mine = [0.0, 0.0, 0.0], list(devices)
            for w, (speed, read) in self._rates.items():
                if w.task in self._grouping[number]:
                    compute, memory = float(speed[mine].sum()), float(read[mine].sum())
                    found[w.phase] += w.flops / compute + max(w.decode_flops / compute, w.decode_bytes / memory)
            self._floors[key] = found[0], found[1], found[2]
        return self._floors[key]

    def best(self, number: int, devices: Sequence[int]) -> GroupDraft | None:
        """The fastest degrees of a side by itself, its devices in rank order; None where none fits."""
        key, tasks = (number, tuple(sorted(devices))), self._grouping[number]
        if key not in self._best:
            made: tuple[GroupDraft | None, Phases] = None, (np.inf, np.inf, np.inf)
            least = np.inf
            for cut, tp in degrees_of(self.problem, tasks, key[1]):
                draft = draft_group(self.problem, tasks, key[1], cut, tp)
                price = self._evaluator.group(draft)
                if price is not None and price.overflow <= 0 and score(price) < least:
                    least, made = score(price), (draft, price.phases)
            self._best[key] = made
        return self._best[key][0]


def _splits(sides: Sides, lines: list[Line]) -> Iterator[tuple[float, Line]]:
    """Splits with what they take at best, the least first: all devices of a line, then fewer of either side, the slowest left out first."""
    heap = [(sides.seconds(line), number, len(line[0]), len(line[1])) for number, line in enumerate(lines)]
    seen = {entry[1:] for entry in heap}
    heapq.heapify(heap)
    steps = [_steps(sides.problem, line) for line in lines]
    while heap:
        floor, number, first, second = heapq.heappop(heap)
        line = lines[number]
        yield floor, (line[0][:first], line[1][:second])
        for smaller in ((steps[number][0].get(first, 0), second), (first, steps[number][1].get(second, 0))):
            if all(smaller) and (number, *smaller) not in seen:
                seen.add((number, *smaller))
                heapq.heappush(heap, (sides.seconds((line[0][: smaller[0]], line[1][: smaller[1]])), number, *smaller))


def _steps(problem: Problem, line: Line) -> list[dict[int, int]]:
    """For each side: from a number of its devices to that without the last machine."""
    found = []
    for devices in line:
        ends = [x for x in range(1, len(devices)) if problem.fleet.machine[devices[x]] != problem.fleet.machine[devices[x - 1]]]
        found.append(dict(zip([*ends[1:], len(devices)], ends, strict=True)) if ends else {})
    return found


def _lines(problem: Problem, grouping: Grouping) -> Iterator[Line]:
    """Devices of both sides: data centres in every combination; in one data centre its types in every order, cut after every device."""
    masks, fleet = [mask_of(problem, tasks) for tasks in grouping], problem.fleet
    usable = [d for d in range(fleet.size) if masks[0][d] or masks[1][d]]
    zones = {m.name: m.zone for m in problem.topology.machines}
    place = {d: (int(fleet.region[d]), zones[fleet.devices[d].machine]) for d in usable}
    places = sorted(set(place.values()))
    speed = np.array([c.best for c in fleet.curves])[fleet.device_class]
    counts = range(1, len(places)) if len(places) <= MOST_PLACES else (1, len(places) - 1)
    for generation in (chosen for count in counts for chosen in combinations(places, count)):
        first, second = ([d for d in usable if (place[d] in generation) == side and masks[1 - side][d]] for side in (True, False))
        if first and second:
            ordered = [tuple(sorted(side, key=lambda d: (-speed[d], fleet.machine[d], d))) for side in (first, second)]
            yield ordered[0], ordered[1]
    if len(places) == 1:
        types = sorted({int(fleet.device_class[d]) for d in usable}, key=lambda c: -fleet.curves[c].best)
        for order in permutations(types):
            line = sorted(usable, key=lambda d: (order.index(int(fleet.device_class[d])), d))
            for size in range(1, len(line)):
                first, second = ([d for d in part if mask[d]] for part, mask in zip((line[:size], line[size:]), masks, strict=True))
                if first and second:
                    yield tuple(first), tuple(second)
