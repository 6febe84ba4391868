"""Device classes for the exact solver: devices of one kind in one machine are interchangeable, so a group is a vector of counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from stages.schedule.problem import Problem
from stages.schedule.search.space import mask_of

Vector = tuple[int, ...]
"""Devices of each cell."""


@dataclass(frozen=True, eq=False)
class Cells:
    """``members[c]`` are the device indices of cell c; ``machine[c]`` its machine. ``orbits``: sets of machines that can be exchanged
    without changing anything a cost depends on, each as one tuple of its machines' cells."""

    members: tuple[tuple[int, ...], ...]
    machine: tuple[int, ...]
    orbits: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def counts(self) -> Vector:
        return tuple(len(m) for m in self.members)

    def devices(self, sequence: tuple[int, ...]) -> tuple[int, ...]:
        """Devices for a sequence of cells, the first unused of each."""
        used = [0] * len(self.members)
        found = []
        for c in sequence:
            found.append(self.members[c][used[c]])
            used[c] += 1
        return tuple(found)

    def placed(self, groups: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Groups that each name the first devices of their cells, on devices of their own."""
        cell_of = {d: c for c, members in enumerate(self.members) for d in members}
        used = [0] * len(self.members)
        found = []
        for devices in groups:
            names: dict[int, int] = {}
            for d in devices:
                c = cell_of[d]
                names[d], used[c] = self.members[c][used[c]], used[c] + 1
            found.append(tuple(names[d] for d in devices))
        return found

    def canonical(self, vector: Vector) -> tuple[Vector, tuple[int, ...]]:
        """The representative of a vector under exchanges of machines, and for each cell of it the cell of the vector it stands for."""
        rename = list(range(len(self.members)))
        for orbit in self.orbits:
            ranked = sorted(orbit, key=lambda cells: [-vector[c] for c in cells])
            for place, actual in zip(orbit, ranked, strict=True):
                for cell, real in zip(place, actual, strict=True):
                    rename[cell] = real
        return tuple(vector[real] for real in rename), tuple(rename)


def build_cells(problem: Problem) -> Cells:
    """Cells of the devices that some task may use."""
    fleet = problem.fleet
    groups: dict[tuple[object, ...], list[int]] = {}
    for d in range(fleet.size):
        allowed = tuple(bool(problem.allowed[t.name][d]) for t in problem.tasks)
        if any(allowed):
            rate = fleet.host_bytes_per_s[d]
            kind = (int(fleet.device_class[d]), float(fleet.memory_bytes[d]), None if np.isnan(rate) else float(rate), allowed)
            groups.setdefault((int(fleet.machine[d]), *kind), []).append(d)
    keys = sorted(groups, key=str)
    members = tuple(tuple(groups[k]) for k in keys)
    machine = tuple(int(str(k[0])) for k in keys)
    return Cells(members=members, machine=machine, orbits=_orbits(problem, keys, machine, members))


def _orbits(
    problem: Problem, keys: list[tuple[object, ...]], machine: tuple[int, ...], members: tuple[tuple[int, ...], ...]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    cells_of: dict[int, list[int]] = {}
    for c, m in enumerate(machine):
        cells_of.setdefault(m, []).append(c)
    shape = {m: tuple((keys[c][1:], len(members[c])) for c in cells) for m, cells in cells_of.items()}
    orbits: list[list[int]] = []
    for m in cells_of:
        home = next((o for o in orbits if shape[o[0]] == shape[m] and all(_exchangeable(problem, m, other) for other in o)), None)
        if home is None:
            orbits.append([m])
        else:
            home.append(m)
    return tuple(tuple(tuple(cells_of[m]) for m in o) for o in orbits if len(o) > 1)


def _exchangeable(problem: Problem, a: int, b: int) -> bool:
    """Whether exchanging two machines leaves every link and their own memory as they are."""
    fleet = problem.fleet
    swap = np.arange(len(fleet.machines))
    swap[[a, b]] = swap[[b, a]]
    same = all(np.array_equal(table, table[np.ix_(swap, swap)]) for table in (fleet.machine_latency_s, fleet.machine_inverse_bandwidth))
    return same and bool(fleet.host_memory_bytes[a] == fleet.host_memory_bytes[b])


def vectors(problem: Problem, cells: Cells, tasks: tuple[str, ...]) -> Iterator[Vector]:
    """Every non-empty choice of as many devices as a plan may use that the tasks may share, as counts."""
    mask = mask_of(problem, tasks)
    most = [len(m) if mask[m[0]] else 0 for m in cells.members]
    for vector in product(*(range(n + 1) for n in most)):
        if 0 < sum(vector) <= problem.most_devices:
            yield vector


def sequences(cells: Cells, vector: Vector, *, most: int) -> tuple[list[tuple[int, ...]], bool]:
    """Orders in which a vector's devices may be dealt, as sequences of cells; and whether these are all there are.

    All distinct orders while they are at most ``most``; else the cells one after the other, in every order of at most ``most``. Of orders
    that an exchange of equally filled equal machines makes from one another, one stands for all.
    """
    everything = _distinct(vector, most)
    if everything is not None:
        return _unlike(cells, vector, everything), True
    blocks = _distinct(tuple(min(1, n) for n in vector), most)
    used = [c for c, n in enumerate(vector) if n]
    if blocks is None:
        blocks = [tuple(used[i:] + used[:i]) for i in range(len(used))] + [tuple(reversed(used))]
    return [tuple(c for c in order for _ in range(vector[c])) for order in _unlike(cells, vector, blocks)], False


def _unlike(cells: Cells, vector: Vector, orders: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Orders in which of equal machines with equally many devices each comes in after the one before it in its orbit."""
    alike = [
        pair
        for orbit in cells.orbits
        for first, second in combinations(orbit, 2)
        if any(vector[c] for c in first) and all(vector[a] == vector[b] for a, b in zip(first, second, strict=True))
        for pair in [(set(first), set(second))]
    ]
    place = [{c: order.index(c) for c in set(order)} for order in orders]
    return [
        order
        for order, at in zip(orders, place, strict=True)
        if all(min(at[c] for c in first if c in at) < min(at[c] for c in second if c in at) for first, second in alike)
    ]


def _distinct(vector: Vector, most: int) -> list[tuple[int, ...]] | None:
    """Distinct permutations of a multiset; None where there are more than ``most``."""
    found: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], left: list[int]) -> bool:
        if len(found) > most:
            return False
        if not any(left):
            found.append(prefix)
            return True
        for c in range(len(left)):
            if left[c]:
                left[c] -= 1
                going = extend((*prefix, c), left)
                left[c] += 1
                if not going:
                    return False
        return True

    return found if extend((), list(vector)) and len(found) <= most else None
