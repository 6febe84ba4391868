"""What it takes to move to a plan from the one in force: bytes that devices do not hold yet, and the seconds they are under way.

A device keeps what it held for a task under the plan in force. The rest of a task's weights comes from a device that held that part of the
role's model for any task, its optimizer state from one that trained it, by the link with the most bandwidth; what no device of the fleet
holds any more comes from the checkpoint, whose place the topology does not know: by the fastest link into the machine. A machine takes in
over one link at a time, and gives over one at a time; machines work at once. So the seconds are the busiest machine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

import numpy as np
from numpy.typing import NDArray

from artifacts.holdings import bytes_per_param, pieces
from artifacts.job import ROLE_OF_TASK, TRAINING_TASKS
from artifacts.plan import Plan, Strategy
from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.draft import Layout
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem, Task

CHECKPOINT = -1
"""The source of what no device holds."""

Rank = tuple[str, int, int, int, int, int]
"""(task, device, tp, shard, first layer, layer behind the last)."""
Transfers = tuple[tuple[int, int, float], ...]
"""(machine it comes from, machine it goes to, bytes)."""
Part = NDArray[np.bool_]
"""``[pieces, cells]``: layers, embedding and head, each cut into equal cells."""


@dataclass(frozen=True)
class Fetch:
    total_bytes: float
    seconds: float


class Moving:
    """Prices the way from a plan in force to any other plan of the same job."""

    def __init__(self, problem: Problem, in_force: Plan) -> None:
        fleet = problem.fleet
        self._problem = problem
        index = {d.id: i for i, d in enumerate(fleet.devices)}
        self._old: dict[str, Strategy] = {str(name): s for name, s in in_force.tasks.items()}
        self._place = {name: {index[r]: i for i, r in enumerate(s.ranks) if r in index} for name, s in self._old.items()}
        usable = fleet.machine_latency_s < UNUSABLE_S
        self._latency = np.where(usable, fleet.machine_latency_s, 0.0)
        self._way = np.where(usable, fleet.machine_inverse_bandwidth, np.inf)
        for m in range(len(fleet.machines)):  # a machine of one device may list no link to itself
            self._way[m, m] = self._way[m, m] if usable[m, m] else 0.0
        self._grain = {
            role: lcm(*(s.tp for name, s in self._old.items() if ROLE_OF_TASK[name] == role)) for role in set(ROLE_OF_TASK.values())
        }
        self._ranks: dict[Rank, Transfers] = {}
        self._sources: dict[tuple[str, bool, int, int], NDArray[np.int64]] = {}

    def of(self, price: PlanPrice) -> Fetch:
        """What all devices of a plan have to fetch, and how long that takes."""
        sums: dict[tuple[int, int], float] = {}
        for group in price.groups:
            for name, layout in group.layouts.items():
                for rank in ranks_of(name, layout):
                    for source, target, amount in self._transfers(rank):
                        sums[source, target] = sums.get((source, target), 0.0) + amount
        return Fetch(total_bytes=sum(sums.values()), seconds=self._seconds(sums))

    def lacks(self, rank: Rank) -> float:
        """Bytes that a rank's device does not hold yet."""
        return sum(amount for _, _, amount in self._transfers(rank))

    def _seconds(self, sums: dict[tuple[int, int], float]) -> float:
        machines = len(self._problem.fleet.machines)
        given, taken, inside = (np.zeros(machines) for _ in range(3))
        for (source, target), amount in sums.items():
            if source == target:
                inside[source] += self._latency[source, source] + amount * self._way[source, source]
                continue
            by = self._way_in(target) if source == CHECKPOINT else source
            seconds = self._latency[by, target] + amount * self._way[by, target]
            taken[target] += seconds
            if source != CHECKPOINT:
                given[source] += seconds
        return float(max(given.max(), taken.max(), inside.max()))

    def _way_in(self, target: int) -> int:
        """The machine with the fastest link to a machine; itself where it has no other."""
        ways = self._way[:, target].copy()
        ways[target] = np.inf
        fastest = int(np.argmin(ways))
        return fastest if np.isfinite(ways[fastest]) else target

    def _transfers(self, rank: Rank) -> Transfers:
        found = self._ranks.get(rank)
        if found is None:
            found = self._ranks[rank] = tuple(self._missing(rank))
        return found

    def _missing(self, rank: Rank) -> Iterator[tuple[int, int, float]]:
        """What a rank's device does not hold for its task, by the machine it comes from."""
        name, device, tp, shard, start, stop = rank
        task = self._problem.task(name)
        grain = lcm(self._grain[ROLE_OF_TASK[name]], tp)
        wanted = _part(task, start, stop, shard, tp, grain)
        if device in self._place.get(name, {}):
            wanted &= ~self._held(name, self._place[name][device], task, grain)
        if not wanted.any():
            return
        cell_params = _sizes(task, start, stop) / grain
        target = int(self._problem.fleet.machine[device])
        weight, state = bytes_per_param(self._problem.job, task.name)
        for is_state, each in ((False, weight), (True, state)):
            if each:
                sources = self._source(task, is_state, grain, target)
                amounts = np.bincount(sources[wanted] + 1, weights=(wanted * cell_params[:, None])[wanted] * each)
                yield from ((int(s) - 1, target, float(amounts[s])) for s in np.flatnonzero(amounts))

    def _held(self, name: str, index: int, task: Task, grain: int) -> Part:
        """What a rank of the plan in force holds."""
        s = self._old[name]
        stage = index // s.tp % s.pp
        start = sum(s.layers[:stage])
        return _part(task, start, start + s.layers[stage], index % s.tp, s.tp, grain)

    def _source(self, task: Task, is_state: bool, grain: int, target: int) -> NDArray[np.int64]:
        """``[pieces, cells]`` machine that gives each part to ``target``; of equally near ones each gives some of the pieces."""
        role = ROLE_OF_TASK[task.name]
        key = (role, is_state, grain, target)
        found = self._sources.get(key)
        if found is None:
            has = np.zeros((len(self._problem.fleet.machines), task.model.layers + 2, grain), dtype=bool)
            for name, places in self._place.items():
                if ROLE_OF_TASK[name] == role and (name in TRAINING_TASKS or not is_state):
                    for device, index in places.items():
                        has[self._problem.fleet.machine[device]] |= self._held(name, index, task, grain)
            ways = np.where(has, self._way[:, target, None, None], np.inf)
            nearest = ways.min(axis=0)
            ties = has & (ways == nearest) & np.isfinite(nearest)
            count = ties.sum(axis=0)
            turn = np.arange(task.model.layers + 2)[:, None] % np.maximum(count, 1) + 1
            chosen = (ties & (ties.cumsum(axis=0) == turn)).argmax(axis=0)
            found = self._sources[key] = np.where(count > 0, chosen, CHECKPOINT)
        return found


def ranks_of(name: str, layout: Layout) -> Iterator[Rank]:
    """The ranks of a task as laid out."""
    stop = 0
    for stage, layers in enumerate(layout.layers):
        start, stop = stop, stop + layers
        for shard in range(layout.tp):
            for device in layout.ranks[:, stage, shard].tolist():
                yield name, device, layout.tp, shard, start, stop


def _part(task: Task, start: int, stop: int, shard: int, tp: int, grain: int) -> Part:
    layers = task.model.layers
    part = np.zeros((layers + 2, grain), dtype=bool)
    rows = [*range(start, stop), *([layers] if start == 0 else []), *([layers + 1] if stop == layers else [])]
    part[rows, shard * grain // tp : (shard + 1) * grain // tp] = True
    return part


def _sizes(task: Task, start: int, stop: int) -> NDArray[np.float64]:
    """Parameters of each piece, before sharding, as a stage with these layers holds it; 0 where it does not."""
    layers = task.model.layers
    sizes = np.zeros(layers + 2)
    split = [n for n in (start, stop - start, layers - stop) if n]
    for name, size in pieces(split, 1 if start else 0, task.model, value_head=task.value_head):
        sizes[{"embedding": layers, "head": layers + 1}.get(name) or int(name.removeprefix("layer "))] = size
    return sizes
