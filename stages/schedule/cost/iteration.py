"""Prices as values: a group, a plan. The arithmetic is the kernel's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.kernel.arrays import (
    HELD,
    MODEL_PROCESS,
    MOVED,
    OVERFLOW,
    ROLLOUT_PROCESS,
    TERMS,
    WORKING,
    Flat,
    Ledger,
)
from stages.schedule.cost.kernel.layout import deal_rollout, lay_out_group
from stages.schedule.cost.kernel.layout import mean_rank_bytes as mean_rank_bytes_kernel
from stages.schedule.cost.kernel.price import compose as compose_kernel
from stages.schedule.cost.kernel.price import reprice_group as reprice_group_kernel
from stages.schedule.cost.tables import compiled, read_task, write_task
from stages.schedule.draft import Cut, GroupDraft, Layout
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import ACTOR_LOG_PROB, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NO_CUT = (0, 0, 0, 0, False)


@dataclass(frozen=True)
class TaskPrice:
    """Seconds of a task in one iteration, by term; the terms add up to the time."""

    terms: dict[str, float]

    @property
    def time_s(self) -> float:
        return sum(self.terms.values())


@dataclass(frozen=True, eq=False)
class GroupMemory:
    """Bytes by ``task.term`` and by task, on the devices of a group, ``[n]`` in the order of ``devices``.

    ``offloaded`` is what the machines' own memory holds for the devices instead.
    """

    devices: Ints
    resident: dict[str, Floats] = field(default_factory=dict)
    working: dict[str, Floats] = field(default_factory=dict)
    offloaded: dict[str, Floats] = field(default_factory=dict)

    def resident_sum(self) -> Floats:
        return sum(self.resident.values(), start=np.zeros(len(self.devices)))

    def peak(self) -> Floats:
        """Σ resident + max working, ``[n]``."""
        most = np.max(list(self.working.values()), axis=0) if self.working else 0.0
        return self.resident_sum() + most  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class GroupPrice:
    """A group laid out and priced. ``overflow`` is the worst device's lack of memory relative to its capacity; 0: everything fits."""

    tasks: tuple[str, ...]
    layouts: dict[str, Layout]
    prices: dict[str, TaskPrice]
    memory: GroupMemory
    overflow: float
    phases: tuple[float, float, float]
    """Seconds of rollout, inference, training."""
    kv_bytes: float = 0.0
    """KV cache of the roomiest rollout replica, on a shard."""

    @property
    def rollout_s(self) -> float:
        return self.phases[0]

    @property
    def inference_s(self) -> float:
        return self.phases[1]

    @property
    def training_s(self) -> float:
        return self.phases[2]


@dataclass(frozen=True, eq=False)
class PlanPrice:
    """A whole plan priced."""

    groups: tuple[GroupPrice, ...]
    iteration_s: float
    weight_update_s: float
    overhead_s: float
    overflow: float

    @property
    def feasible(self) -> bool:
        return self.overflow <= 0.0 and self.iteration_s < UNUSABLE_S

    @property
    def cost(self) -> float:
        """What the search minimises: seconds, with plans that do not fit behind all that do, the nearer to fitting the better."""
        return cost_of(self.iteration_s, self.overflow)


def cost_of(iteration_s: float, overflow: float) -> float:
    if overflow > 0.0:
        return 2 * UNUSABLE_S * (1.0 + overflow) + min(iteration_s, UNUSABLE_S)
    return iteration_s


def price_group(problem: Problem, group: GroupDraft) -> GroupPrice | None:
    """Lay a group out and price its tasks; None where the draft cannot be laid out."""
    kernel = compiled(problem)
    _enter(problem, kernel.flat, group.tasks)
    cut = group.cut
    dp, pp, tp, micro, column = (cut.dp, cut.pp, cut.tp, cut.micro, cut.column) if cut else NO_CUT
    devices = np.array(group.devices, dtype=np.int64)
    made = lay_out_group(kernel.tables, kernel.flat, kernel.ledger, 0, devices, len(devices), dp, pp, tp, micro, column, group.rollout_tp)
    return _priced(problem, group.tasks) if made else None


def make_ready(problem: Problem) -> None:
    """Compile (or load) the kernel: all tasks on one device, priced once. A search whose budget is seconds starts its clock after this."""
    tasks = tuple(t.name for t in problem.tasks)
    mean_rank_bytes(problem, tasks, dp=1, pp=1, tp=1, micro=1, rollout_tp=1)
    group = price_group(problem, GroupDraft(tasks=tasks, devices=(0,), cut=Cut(dp=1, pp=1, tp=1, micro=1), rollout_tp=1))
    if group is not None:
        compose(problem, [group])


def price_layouts(problem: Problem, tasks: tuple[str, ...], layouts: Mapping[str, Layout]) -> GroupPrice | None:
    """Price a group as laid out. A rollout without shares of the batch (``local`` empty) is dealt them; None where that cannot be."""
    kernel = compiled(problem)
    _enter(problem, kernel.flat, tasks)
    index = _index(problem)
    for name, layout in layouts.items():
        if layout.local:
            write_task(kernel.flat, index[name], layout, 0)
    rollout = layouts.get("rollout")
    if rollout is not None and not rollout.local:
        write_task(kernel.flat, index["rollout"], _with_shares(rollout), 0)
        if not deal_rollout(kernel.tables, kernel.flat, kernel.ledger, 0):
            return None
    return _priced(problem, tasks)


def _with_shares(rollout: Layout) -> Layout:
    ones = (1,) * rollout.dp
    return Layout(ranks=rollout.ranks, layers=rollout.layers, local=ones, micro=ones, micro_batches=1)


def _index(problem: Problem) -> dict[str, int]:
    return {t.name: i for i, t in enumerate(problem.tasks)}


def _enter(problem: Problem, flat: Flat, tasks: Sequence[str]) -> None:
    """Make these tasks group 0 of the scratch plan, and all others nobody's."""
    flat.row["group"] = [0 if t.name in tasks else -1 for t in problem.tasks]


def _priced(problem: Problem, tasks: tuple[str, ...]) -> GroupPrice:
    """Price group 0 of the scratch plan, and read what the kernel wrote."""
    kernel, index = compiled(problem), _index(problem)
    ledger, flat = kernel.ledger, kernel.flat
    reprice_group_kernel(kernel.tables, flat, ledger, 0, -1)
    layouts = {name: read_task(flat, index[name]) for name in ("rollout", *tasks) if name in tasks}
    devices = np.array(sorted({d for layout in layouts.values() for d in layout.devices()}), dtype=np.int64)
    rows = {name: index[name] for name in layouts}
    if "actor_training" in rows:
        rows[ACTOR_LOG_PROB] = len(index)
    kv = 0.0
    if "rollout" in layouts:
        replicas = layouts["rollout"].dp
        kv = float(ledger.slot["kv"][:replicas].max())
        layouts["rollout"] = Layout(
            ranks=layouts["rollout"].ranks,
            layers=layouts["rollout"].layers,
            local=layouts["rollout"].local,
            micro=tuple(ledger.slot["in_flight"][:replicas].tolist()),
            micro_batches=1,
        )
    return GroupPrice(
        tasks=tasks,
        layouts=layouts,
        prices={
            name: TaskPrice({term: s for term, s in zip(TERMS, ledger.terms[r].tolist(), strict=True) if s}) for name, r in rows.items()
        },
        memory=_memory(ledger, layouts, index, devices),
        overflow=float(ledger.groups[0, OVERFLOW]),
        phases=tuple(ledger.groups[0, :OVERFLOW].tolist()),
        kv_bytes=kv,
    )


def _memory(ledger: Ledger, layouts: Mapping[str, Layout], index: Mapping[str, int], devices: Ints) -> GroupMemory:
    memory = GroupMemory(devices=devices)
    for name in layouts:
        t = index[name]
        memory.working[name] = ledger.memory[t, WORKING, devices]
        for term, word in enumerate(HELD):
            held = ledger.memory[t, term, devices]
            if held.any():
                key = (
                    f"{name}.{word}"
                    if term not in (MODEL_PROCESS, ROLLOUT_PROCESS)
                    else f"{'rollout' if name == 'rollout' else 'model'}.process"
                )
                memory.resident[key] = memory.resident[key] + held if key in memory.resident else held
        if ledger.memory[t, MOVED, devices].any():
            memory.offloaded[name] = ledger.memory[t, MOVED, devices]
    return memory


def compose(problem: Problem, groups: Sequence[GroupPrice]) -> PlanPrice:
    """Price the plan these groups make."""
    kernel, index = compiled(problem), _index(problem)
    flat, ledger = kernel.flat, kernel.ledger
    flat.row[:] = (-1, 0, 0, 0, 1)
    for g, group in enumerate(groups):
        ledger.groups[g] = (*group.phases, group.overflow)
        ledger.slot["peak"][group.memory.devices] = group.memory.peak()
        for name, layout in group.layouts.items():
            write_task(flat, index[name], layout, g)
            ledger.memory[index[name], MOVED, group.memory.devices] = group.memory.offloaded.get(name, 0.0)
    compose_kernel(kernel.tables, flat, ledger, len(groups))
    return PlanPrice(
        groups=tuple(groups),
        iteration_s=float(ledger.total[0]["iteration"]),
        weight_update_s=float(ledger.total[0]["update"]),
        overhead_s=float(kernel.tables.job[0]["overhead"]),
        overflow=float(ledger.total[0]["overflow"]),
    )


def host_bytes(problem: Problem, groups: Sequence[GroupPrice]) -> Floats:
    """Memory each machine itself must give, ``[machines]``: CPU devices' peaks, and what is offloaded from its GPUs."""
    need = np.zeros(len(problem.fleet.machines))
    for group in groups:
        devices = group.memory.devices
        own = np.where(problem.fleet.memory_is_host[devices], group.memory.peak(), 0.0)
        moved = sum(group.memory.offloaded.values(), start=np.zeros(len(devices)))
        np.add.at(need, problem.fleet.machine[devices], own + moved)
    return need


def mean_rank_bytes(problem: Problem, tasks: tuple[str, ...], *, dp: int, pp: int, tp: int, micro: int, rollout_tp: int) -> float:
    """Bytes the mean rank of a cut would need with equal stages, roughly: what sorts cuts before any is priced."""
    kernel = compiled(problem)
    _enter(problem, kernel.flat, tasks)
    return float(mean_rank_bytes_kernel(kernel.tables, kernel.flat, 0, dp, pp, tp, micro, rollout_tp))
