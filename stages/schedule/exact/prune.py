"""Columns that can be part of a plan faster than one already known. Every column that can is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.schedule.exact.cells import Vector
from stages.schedule.exact.columns import Column
from stages.schedule.exact.floors import PHASES, Floats, combine
from stages.schedule.problem import Problem

LARGEST_LATTICE = 20_000_000


def promising(problem: Problem, columns: Sequence[Column], counts: Vector, cutoff_s: float) -> list[Column]:
    """Columns with which, all other tasks taking their fastest column on the devices left over, an iteration ends before the cut-off."""
    shape = tuple(n + 1 for n in counts)
    kept = undominated(columns, synchronous=problem.job.mode == "sync")
    if np.prod(shape, dtype=float) * len(problem.tasks) * PHASES > LARGEST_LATTICE:
        return kept
    fastest = [(t.name, phase, _fastest(kept, t.name, phase, shape)) for t in problem.tasks for phase in range(PHASES)]
    found = []
    for column in kept:
        left = tuple(n - v for n, v in zip(counts, column.vector, strict=True))
        phases = list(column.seconds)
        for name, phase, table in fastest:
            if name not in column.draft.tasks:
                phases[phase] = max(phases[phase], float(table[left]))
        if combine(problem, phases) + column.update_s <= cutoff_s:
            found.append(column)
    return found


def _fastest(columns: Sequence[Column], task: str, phase: int, shape: tuple[int, ...]) -> Floats:
    """Least seconds in a phase of the columns that have a task, by the devices there are: ``[n_0 + 1, n_1 + 1, …]``."""
    table = np.full(shape, np.inf)
    for column in columns:
        if task in column.draft.tasks:
            table[column.vector] = min(table[column.vector], column.seconds[phase])
    for axis in range(len(shape)):
        table = np.minimum.accumulate(table, axis=axis)
    return table


def undominated(columns: Sequence[Column], *, synchronous: bool) -> list[Column]:
    """Without columns that take at least the devices of another with the same tasks and footprint, and are no better in anything."""
    kept: list[Column] = []
    families: dict[tuple[object, ...], list[Column]] = {}
    for column in columns:
        apart = column.vector if column.footprint else ()  # a weight update between groups depends on their devices
        families.setdefault((column.draft.tasks, column.footprint, apart), []).append(column)
    for family in families.values():
        order = sorted(family, key=lambda c: (sum(c.vector), c.needs(synchronous)))
        needs, vectors = np.array([c.needs(synchronous) for c in order]), np.array([c.vector for c in order])
        alive = np.ones(len(order), dtype=bool)
        for i in range(len(order)):
            if alive[i]:
                beaten = (needs[i + 1 :] >= needs[i]).all(axis=1) & (vectors[i + 1 :] >= vectors[i]).all(axis=1)
                alive[i + 1 :] &= ~beaten
        kept += [c for c, here in zip(order, alive, strict=True) if here]
    return kept
