"""The columns of the exact solver: what a set of tasks can do with a vector of devices, every layout that may be part of a best plan."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from stages.schedule.cost.iteration import host_bytes
from stages.schedule.draft import GroupDraft
from stages.schedule.exact.cells import Cells, Vector, sequences, vectors
from stages.schedule.exact.choices import order_matters, task_sets, whole_cuts
from stages.schedule.exact.column import Column, Footprint, comparable
from stages.schedule.exact.floors import PHASES, Floats, Floors, combine
from stages.schedule.exact.lattice import Lattice
from stages.schedule.exact.sweep import MOST_MACHINES, UPDATE, sweep
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.space import draft_group
from stages.schedule.variant import variant

MOST_ORDERS = 120
"""Orders of a group's devices that are all tried: five devices that differ."""

@dataclass(eq=False)
class Catalogue:
    """All columns. ``complete``: they stand for every plan, not only for those that take machines one after the other; ``finished``: the
    enumeration came to its end."""

    columns: list[Column]
    complete: bool
    finished: bool
    evaluations: int


@dataclass(frozen=True, eq=False)
class Family:
    """What the columns of tasks on a vector are found from: ``least`` seconds of each phase, whatever the layout."""

    tasks: tuple[str, ...]
    vector: Vector
    least: tuple[float, ...]


def enumerate_columns(
    problem: Problem, cells: Cells, *, cutoff_s: float, stop: Callable[[], bool], threads: int = os.cpu_count() or 1
) -> Catalogue:
    """Columns of every task set on every vector that may be part of a plan up to ``cutoff_s``.

    Layouts that are as good nowhere as another of the same tasks, devices and footprint are left out. ``stop`` is asked between vectors;
    when it says so the enumeration ends unfinished.

    Raises:
        InputError: more machines than a set of them can be written down for.
    """
    if len(problem.fleet.machines) > MOST_MACHINES:
        raise InputError(
            f"solver ilp takes at most {MOST_MACHINES} machines, the topology has {len(problem.fleet.machines)}", fix="use auto"
        )
    known = Known(problem, cells)
    found = Catalogue([], True, True, 0)
    for part in known.stages():
        more = _columns_of_sets(problem, cells, known, part, cutoff_s=cutoff_s, stop=stop, threads=threads)
        every, finished = found.complete and more.complete, found.finished and more.finished
        found = Catalogue(found.columns + more.columns, every, finished, found.evaluations + more.evaluations)
        if finished:
            known.learn(part, found.columns)
    return found


class Known:
    """What a family can be held against: work that takes its time whatever the layout, and the columns found so far."""

    def __init__(self, problem: Problem, cells: Cells) -> None:
        self._problem, self._floors, self._counts = problem, Floors(problem, cells), cells.counts
        self._sets, self._done = task_sets(problem), set[tuple[str, ...]]()
        self._lattice = Lattice(problem, [], cells.counts)

    def stages(self) -> list[list[tuple[str, ...]]]:
        """Sets of tasks, those first that make bounds for others: rollout where it is always alone, then all without the actor."""
        rollout: tuple[str, ...] = ("rollout",)
        alone = [rollout] if rollout in self._sets and not any("rollout" in s for s in self._sets if s != rollout) else []
        others = [s for s in self._sets if "actor_training" not in s and s not in alone]
        return [part for part in (alone, others, [s for s in self._sets if s not in alone and s not in others]) if part]

    def learn(self, sets: Sequence[tuple[str, ...]], columns: Sequence[Column]) -> None:
        """All columns of these sets are among ``columns``."""
        self._done |= set(sets)
        if Lattice.fits(self._counts):
            self._lattice = Lattice(self._problem, columns, self._counts)

    def least(self, tasks: tuple[str, ...], vector: Vector) -> Floats:
        """Least seconds of each phase and of what follows one another, ``[4]``, if ``tasks`` have a group on the vector."""
        left = tuple(n - v for n, v in zip(self._counts, vector, strict=True))
        floor = np.array([*self._floors.phases(tasks, vector), 0.0])
        return np.maximum(floor, self._lattice.table(self._settled(tasks))[left])

    def iteration(self, seconds: Floats) -> float:
        return float(self._lattice.iteration(seconds))

    def _settled(self, tasks: tuple[str, ...]) -> int:
        """Other tasks of which all groups that could be beside ``tasks`` are known."""
        if not self._lattice.blocks:
            return 0
        beside = [s for s in self._sets if not set(s) & set(tasks)]
        others = {t for s in beside for t in s}
        return self._lattice.bits([t for t in others if all(s in self._done for s in beside if t in s)])


def _columns_of_sets(
    problem: Problem,
    cells: Cells,
    known: Known,
    sets: Sequence[tuple[str, ...]],
    *,
    cutoff_s: float,
    stop: Callable[[], bool],
    threads: int,
) -> Catalogue:
    families: dict[tuple[tuple[str, ...], Vector], Family] = {}
    wanted: list[tuple[tuple[str, ...], Vector, Vector, tuple[int, ...]]] = []
    for tasks in sets:
        for vector in vectors(problem, cells, tasks):
            least = known.least(tasks, vector)
            if known.iteration(least) <= cutoff_s:
                key, rename = cells.canonical(vector)
                families[tasks, key] = Family(tasks, key, tuple(least[:PHASES].tolist()))
                wanted.append((tasks, vector, key, rename))
    local = threading.local()

    def work(family: Family) -> tuple[list[Column], bool, int]:
        if not hasattr(local, "problem"):
            local.problem = variant(problem)  # the kernel's scratch memory is one thread's
        return columns_of(local.problem, cells, family, cutoff_s=cutoff_s)

    made: dict[tuple[tuple[str, ...], Vector], list[Column]] = {}
    complete, count, finished = True, 0, True
    pool = ThreadPoolExecutor(threads)
    try:
        for name, (columns, every, priced) in zip(families, pool.map(work, families.values()), strict=True):
            made[name], complete, count = columns, complete and every, count + priced
            if stop():
                finished = len(made) == len(families)
                break
    finally:
        pool.shutdown(cancel_futures=True)
    found = []
    for tasks, vector, key, rename in wanted:
        columns = made.get((tasks, key), [])
        found += columns if vector == key else [_moved(cells, column, vector, rename) for column in columns]
    return Catalogue(found, complete, finished, count)


def _moved(cells: Cells, column: Column, vector: Vector, rename: tuple[int, ...]) -> Column:
    """A column on exchanged machines: the same seconds on other devices."""
    cell_of = {d: c for c, members in enumerate(cells.members) for d in members}
    place = {d: i for members in cells.members for i, d in enumerate(members)}
    devices = tuple(cells.members[rename[cell_of[d]]][place[d]] for d in column.draft.devices)
    machine = {cells.machine[c]: cells.machine[real] for c, real in enumerate(rename)}
    footprint, host = column.footprint, column.host
    if not isinstance(footprint, int):
        footprint = tuple((sum(1 << to for m, to in machine.items() if held >> m & 1), layers) for held, layers in footprint)
    if host:
        moved = list(host)
        for m, to in machine.items():
            moved[to] = host[m]
        host = tuple(moved)
    return replace(column, draft=replace(column.draft, devices=devices), vector=vector, footprint=footprint, host=host)


def columns_of(problem: Problem, cells: Cells, family: Family, *, cutoff_s: float) -> tuple[list[Column], bool, int]:
    """Columns of a family; whether every order of its devices was tried; layouts priced."""
    tasks, vector = family.tasks, family.vector
    ordered, every = sequences(cells, vector, most=MOST_ORDERS)
    orders = [cells.devices(sequence) for sequence in ordered]
    cuts = list(whole_cuts(problem, tasks, sum(vector)))
    if not cuts:
        return [], every, 0
    matters = [order_matters(cells, vector, cut, tp, blocks=not every) for cut, tp in cuts]
    swept = sweep(problem, tasks, orders, cuts, matters, least=family.least, cutoff_s=cutoff_s)
    phases, lack, update = swept.values[..., :3], swept.values[..., 3], swept.values[..., UPDATE]
    seconds = combine(problem, [np.maximum(phases[..., at], family.least[at]) for at in range(3)]) + update
    hopeful = np.argwhere((lack <= 0) & (seconds <= cutoff_s) & (phases.max(axis=-1) < UNUSABLE_S))
    rollout_alone = tasks == ("rollout",)
    found = []
    for at, footprint in _families(hopeful, swept.holders, [tp for _, tp in cuts] if rollout_alone else None):
        o, k = at[:, 0], at[:, 1]
        worth = comparable(np.concatenate([phases[o, k], update[o, k, None]], axis=1), problem.job.mode == "sync")
        host = [_host(problem, draft_group(problem, tasks, orders[a], *cuts[b])) for a, b in at] if _uses_host(problem) else None
        for row in pareto(worth if host is None else np.concatenate([worth, host], axis=1)):
            a, b = at[row]
            draft = draft_group(problem, tasks, orders[a], *cuts[b])
            r, i, t = phases[a, b].tolist()
            found.append(Column(draft, vector, (r, i, t), float(update[a, b]), footprint, tuple(host[row]) if host else ()))
    return found, every, int(np.isfinite(lack).sum())


def _families(
    hopeful: NDArray[np.int64], holders: NDArray[np.int64], rollout_tps: list[int] | None
) -> list[tuple[NDArray[np.int64], Footprint]]:
    """(order, cut) rows with one footprint, and the footprint."""
    if not len(hopeful):
        return []
    if rollout_tps is not None:
        tps = np.array(rollout_tps)[hopeful[:, 1]]
        return [(hopeful[tps == tp], int(tp)) for tp in np.unique(tps)]
    if not holders.shape[2]:
        return [(hopeful, 0)]
    flat = holders[hopeful[:, 0], hopeful[:, 1]].reshape(len(hopeful), -1)
    kinds, which = np.unique(flat, axis=0, return_inverse=True)
    return [
        (hopeful[which.ravel() == n], tuple((int(held), int(layers)) for held, layers in kind.reshape(-1, 2) if layers))
        for n, kind in enumerate(kinds)
    ]


def pareto(values: Floats) -> list[int]:
    """Rows of ``[N, V]`` that no other is at most as large as in everything; of equal ones the first."""
    front: list[int] = []
    for row in np.lexsort(values.T[::-1]):
        if not front or not (values[front] <= values[row] * (1 + 1e-12)).all(axis=1).any():
            front.append(int(row))
    return front


def _uses_host(problem: Problem) -> bool:
    return problem.job.engine.offload or bool(problem.fleet.memory_is_host.any())


def _host(problem: Problem, draft: GroupDraft) -> list[float]:
    """Bytes of each machine's own memory."""
    price = Evaluator(problem, Budget(evaluations=1)).group(draft)
    assert price is not None, "what the kernel laid out once it lays out again"
    return [float(b) for b in host_bytes(problem, [price])]
