"""The columns of the exact solver: what a set of tasks can do with a vector of devices, every layout that may be part of a best plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from stages.schedule.cost.iteration import GroupPrice, compose, host_bytes
from stages.schedule.cost.tables import MOST_TP
from stages.schedule.draft import Cut, GroupDraft
from stages.schedule.exact.cells import Cells, Vector, sequences, vectors
from stages.schedule.exact.floors import Floors, combine
from stages.schedule.exact.sweep import sweep
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.space import TASK_ORDER, bundles, draft_group, group_allowed, legal_tps, rollout_tps, smaller_micros

MOST_ORDERS = 120
"""Orders of a group's devices that are all tried: five devices that differ."""


@dataclass(frozen=True, eq=False)
class Column:
    """A group that a plan may have: its seconds in each phase, what it takes, and what the weight update would see of it."""

    draft: GroupDraft
    vector: Vector
    rollout_s: float
    inference_s: float
    training_s: float
    price: GroupPrice
    host: tuple[float, ...]
    """Bytes of each machine's own memory."""
    footprint: tuple[object, ...]
    """Where weights are made or wanted; two columns with one footprint have the same weight update with any other column."""

    @property
    def seconds(self) -> tuple[float, float, float]:
        return self.rollout_s, self.inference_s, self.training_s

    @property
    def needs(self) -> tuple[float, ...]:
        return (*self.seconds, *self.host)


def task_sets(problem: Problem) -> list[tuple[str, ...]]:
    """Every set of tasks that may share a group."""
    parts = bundles(problem)
    found = []
    for chosen in range(1, 2 ** len(parts)):
        tasks = tuple(sorted((t for i, b in enumerate(parts) if chosen >> i & 1 for t in b), key=TASK_ORDER.index))
        if group_allowed(problem, tasks):
            found.append(tasks)
    return found


@dataclass(eq=False)
class Catalogue:
    """All columns, and whether they stand for every plan."""

    columns: list[Column]
    complete: bool
    finished: bool
    evaluations: int


def enumerate_columns(problem: Problem, cells: Cells, *, cutoff_s: float, stop: Callable[[], bool]) -> Catalogue:
    """Columns of every task set on every vector that may be part of a plan up to ``cutoff_s``.

    Layouts that are no better in any phase than another of the same tasks, devices and footprint are left out. ``stop`` is asked between
    vectors; when it says so the enumeration ends unfinished.
    """
    floors = Floors(problem, cells)
    found: list[Column] = []
    complete, count = True, 0
    for tasks in task_sets(problem):
        canonical: dict[Vector, tuple[list[Column], bool]] = {}
        for vector in vectors(problem, cells, tasks):
            least = floors.phases(tasks, vector)
            if combine(problem, least) > cutoff_s:
                continue
            key, rename = cells.canonical(vector)
            if key not in canonical:
                if stop():
                    return Catalogue(found, complete, False, count)
                made, every, priced = _columns(problem, cells, tasks, key, least=least, cutoff_s=cutoff_s)
                canonical[key], count = (made, every), count + priced
            made, every = canonical[key]
            complete = complete and every
            found += made if vector == key else [_moved(problem, cells, column, vector, rename) for column in made]
    return Catalogue(found, complete, True, count)


def _moved(problem: Problem, cells: Cells, column: Column, vector: Vector, rename: tuple[int, ...]) -> Column:
    """A column on exchanged machines: the same seconds on other devices."""
    cell_of = {d: c for c, members in enumerate(cells.members) for d in members}
    place = {d: i for members in cells.members for i, d in enumerate(members)}
    devices = tuple(cells.members[rename[cell_of[d]]][place[d]] for d in column.draft.devices)
    draft = replace(column.draft, devices=devices)
    price = Evaluator(problem, Budget(evaluations=1)).group(draft)
    assert price is not None, "an exchange of equal machines cannot change whether a group can be laid out"
    return _column(problem, draft, vector, price)


def _columns(
    problem: Problem, cells: Cells, tasks: tuple[str, ...], vector: Vector, *, least: list[float], cutoff_s: float
) -> tuple[list[Column], bool, int]:
    """Columns of tasks on a vector; whether every order of its devices was tried; layouts priced."""
    sequence_list, every = sequences(vector, most=MOST_ORDERS)
    orders = [cells.devices(sequence) for sequence in sequence_list]
    cuts = list(whole_cuts(problem, tasks, sum(vector)))
    if not cuts:
        return [], every, 0
    priced = sweep(problem, tasks, orders, cuts)
    seconds = combine(problem, [np.maximum(priced[..., at], least[at]) for at in range(3)])
    hopeful = (priced[..., 3] <= 0) & (seconds <= cutoff_s) & (priced[..., :3].max(axis=-1) < UNUSABLE_S)
    pricing = Evaluator(problem, Budget(evaluations=10**12))
    best: dict[tuple[object, ...], list[Column]] = {}
    for o, k in np.argwhere(hopeful):
        draft = draft_group(problem, tasks, orders[o], *cuts[k])
        price = pricing.group(draft)
        if price is not None and len(price.memory.devices) == sum(vector):
            column = _column(problem, draft, vector, price)
            _keep(best.setdefault(column.footprint, []), column)
    return [c for front in best.values() for c in front], every, priced.shape[0] * priced.shape[1]


def degrees(problem: Problem, tasks: tuple[str, ...], devices: int) -> Iterator[tuple[int, int, int, int]]:
    """Every legal (dp, pp, tp, rollout's tp) that uses all of so many devices: what leaves one out belongs to fewer devices.

    dp, pp and tp are 0 where only rollout runs, rollout's tp where it does not.
    """
    tps = [0]
    if "rollout" in tasks:
        replicas = problem.job.constraints.fix.get("rollout", {}).get("dp")
        legal = [1] if problem.engine.rollout.follows_actor else [t for t in rollout_tps(problem, devices) if devices % t == 0]
        tps = [t for t in legal if replicas in (None, devices // t) and devices // t <= problem.work.sequences]
    if tasks == ("rollout",):
        yield from ((0, 0, 0, tp) for tp in tps)
        return
    fixed = [problem.job.constraints.fix.get(t, {}) for t in tasks if t != "rollout"]  # type: ignore[call-overload]
    layers = min(problem.task(t).model.layers for t in tasks if t != "rollout")
    for tp in legal_tps(problem, tasks, min(devices, MOST_TP)):
        if devices % tp:
            continue
        for pp in (p for p in range(1, min(layers, devices // tp) + 1) if devices // tp % p == 0):
            dp = devices // tp // pp
            named = {"dp": dp, "pp": pp, "tp": tp}
            if problem.legal_dp(dp) and all(named[k] == v for f in fixed for k, v in f.items()):
                yield from ((dp, pp, tp, r) for r in tps)


def whole_cuts(problem: Problem, tasks: tuple[str, ...], devices: int) -> Iterator[tuple[Cut | None, int]]:
    """Every (cut, rollout's tp) of so many devices: the degrees with both arrangements and all bounds of the micro-batch."""
    micros = [problem.work.micro_batch_sequences, *smaller_micros(problem)]
    for dp, pp, tp, rollout_tp in degrees(problem, tasks, devices):
        if not dp:
            yield None, rollout_tp
            continue
        for column in (False, True) if pp > 1 and dp > 1 else (False,):
            yield from ((Cut(dp=dp, pp=pp, tp=tp, micro=micro, column=column), rollout_tp) for micro in micros)


def _column(problem: Problem, draft: GroupDraft, vector: Vector, price: GroupPrice) -> Column:
    host = host_bytes(problem, [price])
    return Column(
        draft=draft,
        vector=vector,
        rollout_s=price.rollout_s,
        inference_s=price.inference_s,
        training_s=price.training_s,
        price=price,
        host=tuple(float(h) for h in host) if host.any() else (),
        footprint=_footprint(problem, price),
    )


def _footprint(problem: Problem, price: GroupPrice) -> tuple[object, ...]:
    """Machines of the actor's stages with their layers, and machines of rollout's shards: what a weight update is a function of."""
    machine, kind = problem.fleet.machine, problem.fleet.device_class
    found: list[object] = []
    for name in ("actor_training", "rollout"):
        layout = price.layouts.get(name)
        if layout is not None:
            places = np.stack([machine[layout.ranks], kind[layout.ranks]], axis=-1)
            found.append((name, layout.layers, layout.tp, tuple(sorted(map(str, places.tolist())))))
    return tuple(found)


def _keep(front: list[Column], column: Column) -> None:
    """Take a column into a Pareto front, unless one there is as good in everything."""
    if any(all(a <= b * (1 + 1e-12) for a, b in zip(other.needs, column.needs, strict=True)) for other in front):
        return
    front[:] = [o for o in front if not all(a <= b for a, b in zip(column.needs, o.needs, strict=True))]
    front.append(column)


def weight_update_of(problem: Problem, cells: Cells, actor: Column, rollout: Column) -> float:
    """Seconds of the weight update between two groups, each on devices of its own, or inside one. 0 where they do not fit side by side."""
    if actor is rollout:
        return compose(problem, [actor.price]).weight_update_s
    if any(a + b > n for a, b, n in zip(actor.vector, rollout.vector, cells.counts, strict=True)):
        return 0.0
    devices = cells.placed([actor.draft.devices, rollout.draft.devices])
    pricing = Evaluator(problem, Budget(evaluations=2))
    prices = [pricing.group(replace(c.draft, devices=d)) for c, d in zip((actor, rollout), devices, strict=True)]
    return compose(problem, [p for p in prices if p is not None]).weight_update_s
