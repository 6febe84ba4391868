"""How many plans there are, level by level: each level counts the plans when everything up to it is decided.

A group of n devices uses all of them (a device without a rank is idle), so its strategies are those with dp · pp · tp = n. Layer splits and
micro-batches are derived, not searched, and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations, product
from math import comb, factorial, lgamma, log, log10, prod

import numpy as np

from artifacts.calibration import Calibration
from artifacts.job import Job
from artifacts.search import Level
from artifacts.topology import Topology
from stages.schedule.exact.cells import build_cells
from stages.schedule.exact.choices import degrees
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.space import Grouping, groupings, mask_of

MOST_STEPS = 3_000_000
"""Steps of the exact sum over device counts. Beyond them the last two levels are approximate; left out where devices differ by task."""
MOST_SIZES = 300_000

Weights = dict[tuple[str, ...], list[int]]
"""Ways to go on, by group and its number of devices."""


def search_space(job: Job, topology: Topology, calibration: Calibration | None = None) -> list[Level]:
    """The search space of a job on a topology.

    Raises:
        InputError: the job's engine does not run on these devices at all.
    """
    return count_levels(build_problem(job, topology, calibration))


def count_levels(problem: Problem) -> list[Level]:
    """Levels from the tasks' groupings to the device of every tasklet."""
    options = groupings(problem)
    counts, kinds = _kinds(problem)
    strategies: Weights = {
        g: [0, *(sum(1 for _ in degrees(problem, g, n)) for n in range(1, sum(counts) + 1))] for grouping in options for g in grouping
    }
    last = [
        _summed(problem, name, options, counts, kinds, strategies, ordered=ordered)
        for name, ordered in (("… and dp, pp, tp of every task", False), ("… and the device of every tasklet", True))
    ]
    return [
        _level("groupings of the tasks, any", bell(len(problem.tasks))),
        _level("groupings the engine runs", len(options)),
        _sizes(problem, options, counts, kinds),
        _level("… and how many devices of each class and machine", sum(_class_vectors(problem, g) for g in options)),
        _level("… and which devices", sum(_assignments(problem, g) for g in options)),
        *(level for level in last if level is not None),
    ]


def bell(n: int) -> int:
    """Set partitions of n things."""
    row = [1]
    for _ in range(n - 1):
        new = [row[-1]]
        for x in row:
            new.append(new[-1] + x)
        row = new
    return row[-1]


def _level(name: str, count: int) -> Level:
    return Level(name=name, count=str(count), log10=_log10(count))


def _log10(count: int) -> float:
    """Of integers of any size."""
    if count < 1:
        return 0.0
    digits = max(0, len(str(count)) - 17)
    return log10(count // 10**digits) + digits


def _kinds(problem: Problem) -> tuple[tuple[int, ...], list[int]]:
    """Usable devices by kind, two being of one kind when the same tasks may use them; and a device of each kind."""
    kinds: dict[tuple[bool, ...], list[int]] = {}
    for d in range(problem.fleet.size):
        key = tuple(bool(problem.allowed[t.name][d]) for t in problem.tasks)
        if any(key):
            kinds.setdefault(key, []).append(d)
    return tuple(len(k) for k in kinds.values()), [k[0] for k in kinds.values()]


def _able(problem: Problem, grouping: Grouping, kinds: Sequence[int]) -> list[list[bool]]:
    """For every group, the kinds of devices it may use."""
    return [[bool(mask[d]) for d in kinds] for mask in (mask_of(problem, g) for g in grouping)]


def _sizes(problem: Problem, options: Sequence[Grouping], counts: tuple[int, ...], kinds: Sequence[int]) -> Level:
    """Size vectors that the devices suffice for, given who may use which (Hall's condition)."""
    total, exact, name = 0, True, "… and how many devices each group has"
    for grouping in options:
        able, most = _able(problem, grouping, kinds), min(sum(counts), problem.most_devices)
        if all(all(row) for row in able):
            total += comb(most, len(grouping))
        elif comb(most, len(grouping)) <= MOST_SIZES:
            total += sum(1 for sizes in _compositions(most, len(grouping)) if _suffices(sizes, able, counts))
        else:
            total, exact = total + 1, False
    return _level(name, total) if exact else Level(name=name, count="", log10=_log10(total), exact=False)


def _compositions(most: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Positive sizes that add up to at most ``most``."""
    for bars in combinations(range(1, most + 1), parts):
        yield tuple(b - a for a, b in zip((0, *bars), bars, strict=False))


def _suffices(sizes: Sequence[int], able: list[list[bool]], counts: Sequence[int]) -> bool:
    return all(
        sum(sizes[g] for g in some) <= sum(n for k, n in enumerate(counts) if any(able[g][k] for g in some))
        for count in range(1, len(sizes) + 1)
        for some in combinations(range(len(sizes)), count)
    )


def _class_vectors(problem: Problem, grouping: Grouping) -> int:
    """Count vectors over the cells (devices of one class in one machine) of all groups, none empty."""
    cells = build_cells(problem)

    def ways(cell: int, groups: int) -> list[int]:
        return [comb(n + groups - 1, n) for n in range(cells.counts[cell] + 1)] if groups else [1]

    return _nonempty(problem, grouping, [m[0] for m in cells.members], ways)


def _assignments(problem: Problem, grouping: Grouping) -> int:
    """A group or idleness for every device, no group empty."""
    return _nonempty(problem, grouping, list(range(problem.fleet.size)), lambda device, groups: [1, groups])


def _nonempty(problem: Problem, grouping: Grouping, devices: list[int], ways: Callable[[int, int], list[int]]) -> int:
    """Σ over sets of groups left empty, with alternating sign, of Π over the devices of the ways to serve the groups that remain.

    ``ways`` of one entry of ``devices``: by how many devices of it are used.
    """
    masks = [mask_of(problem, g)[devices] for g in grouping]
    limited = problem.most_devices < problem.usable.sum()

    @cache
    def served(able: tuple[int, ...]) -> int:
        if not limited:
            return prod(sum(ways(i, n)) for i, n in enumerate(able))
        return sum(_by_count((tuple(ways(i, n)) for i, n in enumerate(able)), problem.most_devices))

    total = 0
    for count in range(len(masks) + 1):
        for kept in combinations(masks, len(masks) - count):
            able = np.sum(kept, axis=0, dtype=int) if kept else np.zeros(len(devices), dtype=int)
            total += (-1) ** count * served(tuple(able.tolist()))
    return total


def _by_count(ways: Iterable[tuple[int, ...]], most: int) -> list[int]:
    """Ways of all entries together by how many devices they use, up to ``most``: the product of polynomials."""
    total = [1]
    for factor in ways:
        following = [0] * min(most + 1, len(total) + len(factor) - 1)
        for n, a in enumerate(total):
            for k, b in enumerate(factor[: len(following) - n]):
                following[n + k] += a * b
        total = following
    return total


def _summed(
    problem: Problem,
    name: str,
    options: Sequence[Grouping],
    counts: tuple[int, ...],
    kinds: list[int],
    strategies: Weights,
    *,
    ordered: bool,
) -> Level | None:
    """Assignments weighted by the groups' strategies, and with ``ordered`` by the orders of their devices."""
    steps = prod((n + 1) * (n + 2) // 2 for n in counts) * sum(len(g) for g in options)
    if steps <= MOST_STEPS:
        orders = [factorial(n) if ordered else 1 for n in range(sum(counts) + 1)]
        weights = {g: [n * o for n, o in zip(s, orders, strict=True)] for g, s in strategies.items()}
        return _level(name, sum(_exact_sum(g, counts, _able(problem, g, kinds), weights, problem.most_devices) for g in options))
    if len(counts) > 1:
        return None
    logs = [_log_sum(g, counts[0], strategies, problem.most_devices, ordered=ordered) for g in options]
    return Level(name=name, count="", log10=float(np.logaddexp.reduce(logs)) / log(10), exact=False)


def _exact_sum(grouping: Grouping, counts: tuple[int, ...], able: list[list[bool]], weights: Weights, most: int) -> int:
    """Devices handed out group after group: how many ways lead to each number of devices left of each kind."""
    table = {counts: 1}
    for tasks, mine in zip(grouping, able, strict=True):
        following: dict[tuple[int, ...], int] = {}
        for left, ways in table.items():
            for taken in product(*(range(n + 1) if here else (0,) for n, here in zip(left, mine, strict=True))):
                weight = weights[tasks][sum(taken)]
                if weight:
                    after = tuple(n - t for n, t in zip(left, taken, strict=True))
                    more = ways * weight * prod(comb(n, t) for n, t in zip(left, taken, strict=True))
                    following[after] = following.get(after, 0) + more
        table = following
    return sum(ways for left, ways in table.items() if sum(counts) - sum(left) <= most)


def _log_sum(grouping: Grouping, devices: int, strategies: Weights, most: int, *, ordered: bool) -> float:
    """The same for devices of one kind, in natural logarithms: D!/(D − N)! · Π s(n)/n! (without the n! where the order counts)."""
    sizes = np.arange(devices + 1)
    log_factorial = np.array([lgamma(n + 1.0) for n in sizes])
    total = np.where(sizes == 0, 0.0, -np.inf)
    for tasks in grouping:
        with np.errstate(divide="ignore"):
            mine = np.log(np.array(strategies[tasks], dtype=float)) - (0.0 if ordered else log_factorial)
        total = np.array([np.logaddexp.reduce(total[: n + 1] + mine[n::-1]) for n in sizes])
    return float(np.logaddexp.reduce((total + log_factorial[-1] - log_factorial[::-1])[: most + 1]))
