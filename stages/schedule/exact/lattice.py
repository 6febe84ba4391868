"""What no choice of columns can beat: least seconds of sets of tasks that share the devices there are, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from stages.schedule.exact.cells import Vector
from stages.schedule.exact.column import Column
from stages.schedule.exact.floors import PHASES, Floats, combine
from stages.schedule.problem import Problem

LARGEST_LATTICE = 100_000
"""Vectors of device counts beyond which the tables are not made."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Block:
    """The columns of one set of tasks: ``vectors`` ``[N, cells]``, ``seconds`` ``[N, 4]`` (rollout, inference, training, and what the group
    keeps its devices busy for of what follows one another), ``update_s`` ``[N]`` of the weight update inside the group, ``devices``
    ``[N]``, ``host`` ``[N, machines]`` (no machines where host memory is not used)."""

    columns: tuple[Column, ...]
    vectors: Ints
    seconds: Floats
    update_s: Floats
    devices: Ints
    host: Floats


class Lattice:
    """Columns by sets of tasks (as bits), and the least seconds of any set of tasks by the devices there are.

    The table of a set ``R`` on devices ``v`` is, phase by phase, the least over all partitions of R into groups on disjoint parts of v of
    the longest of these groups. Each phase takes its own best partition, so that no plan beats the table, and few plans reach it.
    """

    def __init__(self, problem: Problem, columns: Sequence[Column], counts: Vector) -> None:
        self._problem, self.counts = problem, np.array(counts, dtype=np.int64)
        self._bits: dict[str, int] = {t.name: 1 << i for i, t in enumerate(problem.tasks)}
        self.all = sum(self._bits.values())
        apart: dict[int, list[Column]] = {}
        for column in columns:
            apart.setdefault(self.bits(column.draft.tasks), []).append(column)
        self.blocks = {bits: self._block(mine) for bits, mine in apart.items()}
        self._least: dict[int, Floats] = {}
        self._tables: dict[int, Floats] = {}

    def bits(self, tasks: Sequence[str]) -> int:
        return sum(self._bits[t] for t in tasks)

    def _block(self, columns: list[Column]) -> Block:
        phases = np.array([c.seconds for c in columns])
        busy = phases[:, 1:].sum(axis=1) if self._problem.job.mode == "async" else phases.sum(axis=1)
        vectors = np.array([c.vector for c in columns], dtype=np.int64)
        return Block(
            columns=tuple(columns),
            vectors=vectors,
            seconds=np.concatenate([phases, busy[:, None]], axis=1),
            update_s=np.array([c.update_s for c in columns]),
            devices=vectors.sum(axis=1),
            host=np.array([c.host for c in columns]).reshape(len(columns), -1),
        )

    def iteration(self, seconds: Floats) -> Floats:
        """Seconds of an iteration from ``[..., 4]`` seconds of its phases, without a weight update."""
        return np.maximum(combine(self._problem, [seconds[..., p] for p in range(PHASES)]), seconds[..., PHASES] + self._problem.overhead_s)

    def table(self, tasks: int) -> Floats:
        """Least seconds of a set of tasks by devices, ``[n_0 + 1, n_1 + 1, …, 4]``."""
        found = self._tables.get(tasks)
        if found is None:
            found = self._tables[tasks] = self._made(tasks)
        return found

    def _made(self, tasks: int) -> Floats:
        shape = tuple(int(n) + 1 for n in self.counts)
        if not tasks:
            return np.zeros((*shape, PHASES + 1))
        table, first = np.full((*shape, PHASES + 1), np.inf), tasks & -tasks
        for bits, block in self.blocks.items():
            if not bits & first or bits & ~tasks:
                continue
            least = self._of_block(bits, shape)
            if bits == tasks:
                table = np.minimum(table, least)
                continue
            rest = self.table(tasks & ~bits)
            for vector in {tuple(v) for v in block.vectors.tolist()}:
                behind = table[tuple(slice(n, None) for n in vector)]
                left = rest[tuple(slice(0, s - n) for s, n in zip(shape, vector, strict=True))]
                np.minimum(behind, np.maximum(least[vector], left), out=behind)
        return table

    def _of_block(self, bits: int, shape: tuple[int, ...]) -> Floats:
        """Least seconds of one group by devices."""
        if bits not in self._least:
            table, block = np.full((*shape, PHASES + 1), np.inf), self.blocks[bits]
            np.minimum.at(table, tuple(block.vectors.T), block.seconds)
            for axis in range(len(shape)):
                table = np.minimum.accumulate(table, axis=axis)
            self._least[bits] = table
        return self._least[bits]

    @staticmethod
    def fits(counts: Vector) -> bool:
        """Whether the tables are small enough to be made."""
        return prod(n + 1 for n in counts) <= LARGEST_LATTICE
