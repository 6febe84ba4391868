"""``streamrl``: two groups, generation and the rest (Zhong et al., 2025), each treated as a homogeneous cluster.

The groups are split along region boundaries; in one region by type of device. How many devices each gets is found by enumeration, and
likewise the degrees inside a group; layers and batches are equal. Made for asynchronous training; in synchronous mode the groups wait
for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from artifacts.errors import InputError
from stages.schedule.draft import Draft, GroupDraft
from stages.schedule.problem import Problem
from stages.schedule.search.baselines.mean_device import degrees_of
from stages.schedule.search.construct import score
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import Grouping, device_seconds, draft_group, estimate, groupings, mask_of

Split = tuple[tuple[int, ...], tuple[int, ...]]
"""Devices of generation, devices of the rest, each in rank order."""


def streamrl(evaluator: Evaluator) -> SearchReport:
    """Enumerate splits, the more promising first, until done or out of budget. ``evaluator`` prices with equal layers and batches.

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
    work = device_seconds(problem)
    splits = sorted(set(_splits(problem, grouping)), key=lambda s: (estimate(problem, grouping, (len(s[0]), len(s[1])), work), s))
    best: dict[tuple[str, tuple[int, ...]], GroupDraft | None] = {}
    for split in splits:
        if evaluator.left() <= 0:
            break
        groups = []
        for tasks, devices in zip(grouping, split, strict=True):
            key = (tasks[0], devices)
            if key not in best:
                best[key] = _best(evaluator, tasks, devices)
            groups.append(best[key])
        made = tuple(g for g in groups if g is not None)
        if len(made) == len(groups):
            evaluator.plan(Draft(groups=made))
    return SearchReport(arms=[], operators={})


def _splits(problem: Problem, grouping: Grouping) -> Iterator[Split]:
    masks = [mask_of(problem, tasks) for tasks in grouping]
    fleet = problem.fleet
    usable = [d for d in range(fleet.size) if masks[0][d] or masks[1][d]]
    regions = sorted({int(fleet.region[d]) for d in usable})
    if len(regions) > 1:
        for count in range(1, len(regions)):
            for generation in combinations(regions, count):
                sides = [[d for d in usable if (fleet.region[d] in generation) == side] for side in (True, False)]
                for first in _by_machines(problem, [d for d in sides[0] if masks[0][d]]):
                    for second in _by_machines(problem, [d for d in sides[1] if masks[1][d]]):
                        yield first, second
        return
    speed = np.array([c.best for c in fleet.curves])
    for order in permutations(sorted({int(fleet.device_class[d]) for d in usable}, key=lambda c: -speed[c])):
        line = sorted(usable, key=lambda d: (order.index(int(fleet.device_class[d])), d))
        for size in range(1, len(line)):
            first, second = (tuple(d for d in part if mask[d]) for part, mask in zip((line[:size], line[size:]), masks, strict=True))
            if first and second:
                yield tuple(sorted(first)), tuple(sorted(second))


def _by_machines(problem: Problem, devices: list[int]) -> Iterator[tuple[int, ...]]:
    """Sizes of a side: its fastest machine, its fastest two, and so on to all of them."""
    speed = np.array([c.best for c in problem.fleet.curves])[problem.fleet.device_class]
    machines = sorted({int(problem.fleet.machine[d]) for d in devices})
    machines.sort(key=lambda m: -max(speed[d] for d in devices if problem.fleet.machine[d] == m))
    for count in range(1, len(machines) + 1):
        kept = set(machines[:count])
        yield tuple(d for d in devices if int(problem.fleet.machine[d]) in kept)


def _best(evaluator: Evaluator, tasks: tuple[str, ...], devices: tuple[int, ...]) -> GroupDraft | None:
    """The fastest degrees of a group by itself; the nearest to fitting where none fits."""
    best: tuple[float, GroupDraft] | None = None
    for cut, tp in degrees_of(evaluator.problem, tasks, devices):
        draft = draft_group(evaluator.problem, tasks, devices, cut, tp)
        price = evaluator.group(draft)
        if price is not None and (best is None or score(price) < best[0]):
            best = score(price), draft
    return None if best is None else best[1]
