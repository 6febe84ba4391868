"""The other exact method: branch and bound over columns, group by group, against the lattice's bounds.

A node is a choice of columns that leaves some tasks without one. It is followed while what is chosen, with the least that the other tasks
need on the devices left over, can end before the best choice known. No linear relaxation is involved, and no solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stages.schedule.exact.cells import Cells
from stages.schedule.exact.column import Column
from stages.schedule.exact.floors import PHASES, Floats
from stages.schedule.exact.lattice import Ints, Lattice
from stages.schedule.exact.outcome import TOLERANCE, Outcome, Updates, host_limits
from stages.schedule.problem import Problem


class OutOfTime(Exception):
    pass


@dataclass(frozen=True, eq=False)
class Node:
    """Columns chosen, tasks without one, devices left, seconds of the phases and of an update inside a group, bytes of each machine."""

    chosen: tuple[Column, ...]
    tasks: int
    left: Ints
    devices: int
    seconds: Floats
    update_s: float
    host: Floats


def branch(
    problem: Problem,
    columns: Sequence[Column],
    cells: Cells,
    *,
    cutoff_s: float,
    stop: Callable[[], bool] = lambda: False,
    on_better: Callable[[list[Column], float], None] = lambda chosen, seconds: None,
) -> Outcome:
    """The best choice of columns up to ``cutoff_s``. ``stop`` is asked at every node; it may raise. ``on_better`` is told each new best."""
    return Search(problem, columns, cells, cutoff_s, stop, on_better).run()


class Search:
    def __init__(
        self,
        problem: Problem,
        columns: Sequence[Column],
        cells: Cells,
        cutoff_s: float,
        stop: Callable[[], bool],
        on_better: Callable[[list[Column], float], None],
    ) -> None:
        self._problem, self._stop, self._on_better = problem, stop, on_better
        self._lattice = Lattice(problem, columns, cells.counts)
        self._updates = Updates(problem, cells)
        self._best_s, self._best, self._cutoff_s = cutoff_s * (1 + TOLERANCE), None, cutoff_s  # type: float, tuple[Column, ...] | None, float
        self._limits = host_limits(problem) if columns and columns[0].host else np.zeros(0)
        self._bound_s, self.nodes = 0.0, 0
        most = {b: sum(len(block.columns) for bits, block in self._lattice.blocks.items() if bits & b) for b in self._bits()}
        self._order = sorted(most, key=lambda b: most[b])

    def _bits(self) -> list[int]:
        return [self._lattice.bits([t.name]) for t in self._problem.tasks]

    def run(self) -> Outcome:
        counts = self._lattice.counts
        root = Node((), self._lattice.all, counts, self._problem.most_devices, np.zeros(PHASES + 1), 0.0, np.zeros(len(self._limits)))
        try:
            self._follow(root)
        except OutOfTime:
            return Outcome(self._result(), self._objective(), min(self._bound_s, self._objective()), False, self.nodes)
        return Outcome(self._result(), self._objective(), min(self._objective(), self._cutoff_s), True, self.nodes)

    def _result(self) -> list[Column] | None:
        return None if self._best is None else list(self._best)

    def _objective(self) -> float:
        return float("inf") if self._best is None else self._best_s

    def _follow(self, node: Node) -> None:
        self.nodes += 1
        if self._stop():
            raise OutOfTime
        values, at = self._children(node)
        for row in np.argsort(values, kind="stable"):
            if values[row] >= self._best_s:
                break
            if not node.chosen:
                self._bound_s = float(values[row])
            bits, number = int(at[row, 0]), int(at[row, 1])
            child = self._child(node, bits, number)
            if child.tasks:
                self._follow(child)
            else:
                self._leaf(child, float(values[row]))

    def _children(self, node: Node) -> tuple[Floats, Ints]:
        """Lower bounds of the columns that may follow, with their block and number in it."""
        first = next(b for b in self._order if b & node.tasks)
        values, at = [np.empty(0)], [np.empty((0, 2), dtype=np.int64)]
        for bits, block in self._lattice.blocks.items():
            if not bits & first or bits & ~node.tasks:
                continue
            rows = np.flatnonzero((block.vectors <= node.left).all(axis=1) & (block.devices <= node.devices))
            if len(self._limits):
                rows = rows[(node.host + block.host[rows] <= self._limits).all(axis=1)]
            rest = self._lattice.table(node.tasks & ~bits)[tuple((node.left - block.vectors[rows]).T)]
            seconds = np.maximum(np.maximum(block.seconds[rows], node.seconds), rest)
            bound = self._lattice.iteration(seconds) + node.update_s + block.update_s[rows]
            good = bound < self._best_s
            values.append(bound[good])
            at.append(np.stack([np.full(int(good.sum()), bits), rows[good]], axis=1))
        return np.concatenate(values), np.concatenate(at)

    def _child(self, node: Node, bits: int, number: int) -> Node:
        block = self._lattice.blocks[bits]
        return Node(
            chosen=(*node.chosen, block.columns[number]),
            tasks=node.tasks & ~bits,
            left=node.left - block.vectors[number],
            devices=node.devices - int(block.devices[number]),
            seconds=np.maximum(node.seconds, block.seconds[number]),
            update_s=node.update_s + float(block.update_s[number]),
            host=node.host + block.host[number] if len(self._limits) else node.host,
        )

    def _leaf(self, node: Node, least_s: float) -> None:
        actor, rollout = (next(c for c in node.chosen if task in c.draft.tasks) for task in ("actor_training", "rollout"))
        value = least_s if actor is rollout else least_s + self._updates.seconds(actor, rollout)
        if value < self._best_s:
            self._best_s, self._best = value, node.chosen
            self._on_better(list(node.chosen), value)
