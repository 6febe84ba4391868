"""``verl``: the auto-mapping of HybridFlow (Sheng et al., EuroSys 2025, algorithm 1), made for homogeneous clusters.

It enumerates placements of the models (set partitions), sizes of the placements' device sets, and for each set one (dp, pp, tp) for its
models, all as if every device were the mean one; ranks go to devices in order; layers and batches are equal everywhere. Here the degrees
are chosen by the mean device, and every placement with its sizes is then judged under the true topology, so that what is returned is the
best plan the method can name: also over the orders in which the sets take their ranks, and with the next best degrees where the best do
not fit the devices they get.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations
from math import comb, factorial

from stages.schedule.draft import Draft, GroupDraft
from stages.schedule.problem import Problem
from stages.schedule.search.baselines.mean_device import MeanDegrees
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import Grouping, Sizes, device_seconds, draft_group, estimate, groupings, mask_of

MOST_PLACEMENTS = 60_000
"""Placements × sizes × orders of one grain: a finer grain than that is not enumerated."""

Placement = tuple[Grouping, Sizes]


def verl(evaluator: Evaluator) -> SearchReport:
    """Enumerate, coarse sizes first, the more promising by the mean device's work first, until done or out of budget.

    ``evaluator`` prices with equal layers and batches.
    """
    problem, degrees = evaluator.problem, MeanDegrees(evaluator)
    seen: set[Placement] = set()
    for grain in _grains(problem):
        for grouping, sizes in _placements(problem, grain):
            if evaluator.left() <= 0:
                return SearchReport(arms=[], operators={})
            if (grouping, sizes) not in seen:
                seen.add((grouping, sizes))
                draft = _plan(evaluator, degrees, grouping, sizes)
                if draft is not None:
                    evaluator.plan(draft)
    return SearchReport(arms=[], operators={})


def _usable(problem: Problem) -> int:
    return problem.fleet.size - len(problem.excluded)


def _grains(problem: Problem) -> Iterator[int]:
    """Sizes of blocks devices are counted in: 8, 4, 2, 1, as far as enumeration is feasible."""
    most = max((len(g) for g in groupings(problem)), default=1)
    for grain in (8, 4, 2, 1):
        steps = _usable(problem) // grain
        if steps >= 1 and comb(max(steps - 1, 0), most - 1) * factorial(most) <= MOST_PLACEMENTS:
            yield grain


def _placements(problem: Problem, grain: int) -> list[Placement]:
    """Ordered placements: the groups in the order in which they take ranks, and their sizes, which add up to all usable devices."""
    total, work = _usable(problem), device_seconds(problem)
    steps, rest = divmod(total, grain)
    found: list[tuple[float, Placement]] = []
    for grouping in groupings(problem):
        for bars in combinations(range(1, steps), len(grouping) - 1):
            sizes = tuple((b - a) * grain for a, b in pairwise((0, *bars, steps)))
            for order in permutations(range(len(grouping))):
                groups = tuple(grouping[g] for g in order)
                dealt = (*sizes[:-1], sizes[-1] + rest)
                found.append((estimate(problem, groups, dealt, work), (groups, dealt)))
    return [placement for _, placement in sorted(found)]


def _plan(evaluator: Evaluator, degrees: MeanDegrees, grouping: Grouping, sizes: Sizes) -> Draft | None:
    """Devices in rank order, degrees by the mean device; None where a group finds no devices or no degrees."""
    problem = evaluator.problem
    free = list(range(problem.fleet.size))
    groups = []
    for tasks, size in zip(grouping, sizes, strict=True):
        allowed = mask_of(problem, tasks)
        mine = tuple(d for d in free if allowed[d])[:size]
        if len(mine) < size:
            return None
        taken = set(mine)
        free = [d for d in free if d not in taken]
        group = _first_that_fits(evaluator, degrees, tasks, mine)
        if group is None:
            return None
        groups.append(group)
    return Draft(groups=tuple(groups))


def _first_that_fits(evaluator: Evaluator, degrees: MeanDegrees, tasks: tuple[str, ...], devices: tuple[int, ...]) -> GroupDraft | None:
    """The mean device's best degrees that fit these devices' true memory; the nearest to fitting where none does."""
    nearest: tuple[float, GroupDraft] | None = None
    for cut, tp in degrees.ranked(tasks, len(devices)):
        group = draft_group(evaluator.problem, tasks, devices, cut, tp)
        price = evaluator.group(group)
        if price is None:
            continue
        if price.overflow <= 0:
            return group
        if nearest is None or price.overflow < nearest[0]:
            nearest = price.overflow, group
    return None if nearest is None else nearest[1]
