"""Columns that can be part of a plan faster than one already known. Every column that can is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.schedule.exact.cells import Vector
from stages.schedule.exact.column import Column
from stages.schedule.exact.lattice import Lattice
from stages.schedule.problem import Problem


def promising(problem: Problem, columns: Sequence[Column], counts: Vector, cutoff_s: float) -> list[Column]:
    """Columns with which, all other tasks doing their best together on the devices left over, an iteration ends before the cut-off."""
    kept = undominated(columns, synchronous=problem.job.mode == "sync")
    if not Lattice.fits(counts):
        return kept
    lattice = Lattice(problem, kept, counts)
    found = []
    for bits, block in lattice.blocks.items():
        rest = lattice.table(lattice.all & ~bits)[tuple((lattice.counts - block.vectors).T)]
        least = lattice.iteration(np.maximum(block.seconds, rest)) + block.update_s
        found += [c for c, seconds in zip(block.columns, least, strict=True) if seconds <= cutoff_s]
    return found


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
