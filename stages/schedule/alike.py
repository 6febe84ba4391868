"""The same plan under other names: machines and devices that are alike change places where that leaves less to fetch.

Devices of one class in one machine that the same tasks may use are alike; so are two machines of such devices whose links to every machine
are the same. A plan takes as long whichever of them does what, but not every one of them holds what it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.draft import Draft
from stages.schedule.moving import Moving, Rank, ranks_of
from stages.schedule.problem import Problem

PASSES = 4
MOST_DEVICES = 256
"""On larger fleets a plan keeps its names: every device would be compared with every like one."""


def renamed(problem: Problem, draft: Draft, price: PlanPrice, moving: Moving) -> Draft:
    """The plan with alike machines, then alike devices, exchanged while that saves bytes; ``price`` is the plan's."""
    fleet = problem.fleet
    if fleet.size > MOST_DEVICES:
        return draft
    work: dict[int, list[Rank]] = {}
    for group in price.groups:
        for rank in (rank for task, layout in group.layouts.items() for rank in ranks_of(task, layout)):
            work.setdefault(rank[1], []).append(rank)

    def lacks(x: int, y: int) -> float:
        """Bytes that ``y`` fetches to do what the plan has ``x`` do."""
        return sum((moving.lacks((rank[0], y, *rank[2:])) for rank in work.get(x, [])), 0.0)

    members = [np.flatnonzero(fleet.machine == m).tolist() for m in range(len(fleet.machines))]
    name = list(range(fleet.size))
    place = list(range(len(members)))
    known: dict[tuple[int, int], float] = {}

    def machine_lacks(a: int, b: int) -> float:
        """Bytes that the devices of ``b`` fetch to do what those of ``a`` do in the plan, those that have most of it first."""
        if (a, b) not in known:
            worst = {x: max(lacks(x, y) for y in members[b]) for x in members[a]}
            free, left, total = list(members[a]), list(members[b]), 0.0
            while free:
                x, y = max(((x, y) for x in free for y in left), key=lambda pair: worst[pair[0]] - lacks(*pair))
                free.remove(x)
                left.remove(y)
                total += lacks(x, y)
            known[a, b] = total
        return known[a, b]

    pairs = [(a, b) for a in range(len(members)) for b in range(a) if members[a] and machines_alike(problem, members[a], members[b])]
    _exchange(place, pairs, machine_lacks)
    for a, b in enumerate(place):
        for x, y in zip(members[a], members[b], strict=True):
            name[x] = y
    kinds = [_kind(problem, x) for x in range(fleet.size)]
    for mine in members:
        _exchange(name, [(x, y) for x in mine for y in mine if y < x and kinds[x] == kinds[y]], lacks)
    return Draft(groups=tuple(replace(g, devices=tuple(name[d] for d in g.devices)) for g in draft.groups))


def _exchange(place: list[int], pairs: list[tuple[int, int]], lacks: Callable[[int, int], float]) -> None:
    """Let pairs change places while that saves something."""
    for _ in range(PASSES):
        better = False
        for a, b in pairs:
            now, then = lacks(a, place[a]) + lacks(b, place[b]), lacks(a, place[b]) + lacks(b, place[a])
            if then < now - 0.5:
                place[a], place[b] = place[b], place[a]
                better = True
        if not better:
            return


def machines_alike(problem: Problem, first: list[int], second: list[int]) -> bool:
    """Whether two machines, by their devices, may change places in any plan."""
    fleet = problem.fleet
    if [_kind(problem, x) for x in first] != [_kind(problem, x) for x in second] or not first:
        return False
    a, b = int(fleet.machine[first[0]]), int(fleet.machine[second[0]])
    if fleet.region[first[0]] != fleet.region[second[0]] or fleet.host_memory_bytes[a] != fleet.host_memory_bytes[b]:
        return False
    swapped = np.arange(len(fleet.machines))
    swapped[[a, b]] = b, a
    links = (fleet.machine_latency_s, fleet.machine_inverse_bandwidth)
    return all(np.array_equal(m, m[np.ix_(swapped, swapped)]) for m in links)


def _kind(problem: Problem, x: int) -> tuple[object, ...]:
    fleet = problem.fleet
    return (
        int(fleet.device_class[x]),
        float(fleet.memory_bytes[x]),
        float(np.nan_to_num(fleet.host_bytes_per_s[x])),
        *(bool(mask[x]) for mask in problem.allowed.values()),
    )
