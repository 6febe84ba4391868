"""One iteration: price a group, then compose the groups. A group is an exclusive resource; groups run at the same time.

Synchronous: rollout, then all inference, then all training, then the weight update (each phase needs the whole batch of the one before).
Asynchronous: rollout beside the rest, then the weight update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.stages.schedule.reference.reshard import weight_update_s
from tests.stages.schedule.reference.residency import GroupMemory, MemoryLedger
from tests.stages.schedule.reference.rollout import price_rollout
from tests.stages.schedule.reference.tasks import TaskPrice, inference_price, training_price
from stages.schedule.draft import GroupDraft, Layout
from tests.stages.schedule.reference.draft import units_of
from stages.schedule.fleet import UNUSABLE_S
from tests.stages.schedule.reference.layouts import lay_out
from stages.schedule.problem import ACTOR_LOG_PROB, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GroupPrice:
    """A group laid out and priced. ``overflow`` is the worst device's lack of memory relative to its capacity; 0: everything fits."""

    tasks: tuple[str, ...]
    layouts: dict[str, Layout]
    prices: dict[str, TaskPrice]
    memory: GroupMemory
    overflow: float

    @property
    def rollout_s(self) -> float:
        return self._sum(lambda name: name == "rollout")

    @property
    def inference_s(self) -> float:
        return self._sum(lambda name: name.endswith("_inference") or name == ACTOR_LOG_PROB)

    @property
    def training_s(self) -> float:
        return self._sum(lambda name: name.endswith("_training"))

    def _sum(self, keep: Callable[[str], bool]) -> float:
        return sum(p.time_s for name, p in self.prices.items() if keep(name))


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
        if self.overflow > 0.0:
            return 2 * UNUSABLE_S * (1.0 + self.overflow) + min(self.iteration_s, UNUSABLE_S)
        return self.iteration_s


def price_group(problem: Problem, group: GroupDraft) -> GroupPrice | None:
    """Lay a group out and price its tasks; None where the draft cannot be laid out."""
    layouts = lay_out(problem, group)
    if layouts is None:
        return None
    ranks = _rollout_ranks(problem, group, layouts)
    if ranks is None and "rollout" in group.tasks:
        return None
    return price_layouts(problem, group.tasks, layouts, rollout_ranks=ranks)


def price_layouts(
    problem: Problem,
    tasks: tuple[str, ...],
    layouts: dict[str, Layout],
    *,
    rollout_ranks: Ints | None,
    shares: tuple[int, ...] | None = None,
) -> GroupPrice | None:
    """Price a group whose training and inference tasks are laid out. ``shares`` of the batch by rollout replica: dealt here if None."""
    used = {d for layout in layouts.values() for d in layout.devices()}
    if rollout_ranks is not None:
        used |= {int(d) for d in rollout_ranks.ravel()}
    devices = np.array(sorted(used), dtype=np.int64)
    ledger = MemoryLedger(problem, tasks, devices)
    prices: dict[str, TaskPrice] = {}
    for number, (name, layout) in enumerate(layouts.items()):
        task = problem.task(name)
        if number == 0:
            ledger.process("model", layout.ranks)
        ledger.model_task(task, layout)
        prices[name] = _with_offload(
            problem, ledger.memory, name, training_price(problem, task, layout) if task.training else inference_price(problem, task, layout)
        )
    if "actor_training" in layouts:
        prices[ACTOR_LOG_PROB] = inference_price(
            problem, problem.task("actor_training"), layouts["actor_training"], factor_of=ACTOR_LOG_PROB
        )
    short = 0.0
    if rollout_ranks is not None:
        ledger.process("rollout", rollout_ranks)
        ledger.rollout_weights(rollout_ranks)
        rollout = price_rollout(problem, ranks=rollout_ranks, kv_budget=ledger.kv_budget(rollout_ranks), shares=shares)
        if rollout is None:
            return None
        ledger.kv(rollout_ranks, rollout.kv_bytes)
        layouts = {"rollout": rollout.layout, **layouts}
        prices["rollout"] = _with_offload(problem, ledger.memory, "rollout", rollout.price)
        short = float((rollout.shortfall / problem.usable_bytes[rollout_ranks].min(axis=(1, 2))).max())
    over = (ledger.memory.peak() - problem.usable_bytes[devices]) / problem.fleet.memory_bytes[devices]
    return GroupPrice(
        tasks=tasks, layouts=layouts, prices=prices, memory=ledger.memory, overflow=max(0.0, short, _beyond(float(over.max())))
    )


def _beyond(relative: float) -> float:
    """A lack of memory, or nothing: less than a millionth is rounding."""
    return relative if relative > 1e-6 else 0.0


def _rollout_ranks(problem: Problem, group: GroupDraft, layouts: dict[str, Layout]) -> Ints | None:
    """``[replicas, 1, tp]``: on the actor's ranks in their order where they share a group, else on the group's own devices."""
    if not group.rollout_tp:
        return None
    tp = group.rollout_tp
    actor = layouts.get("actor_training")
    if actor is not None:
        ranks = actor.ranks.ravel()
        return ranks.reshape(-1, 1, tp) if ranks.size % tp == 0 else None
    units = units_of(group.devices, problem.fleet.machine, tp)
    return np.array(units, dtype=np.int64)[:, None, :] if units else None


def _with_offload(problem: Problem, memory: GroupMemory, name: str, price: TaskPrice) -> TaskPrice:
    """Add the way in and out over the host link for what is offloaded between a task's phases."""
    moved = sum((held for key, held in memory.offloaded.items() if key.startswith(f"{name}.")), start=np.zeros(len(memory.devices)))
    if not moved.any():
        return price
    rate = problem.fleet.host_bytes_per_s[memory.devices]
    seconds = np.where(moved > 0, 2 * moved / np.where(np.isnan(rate), 1e-9, rate), 0.0)
    return TaskPrice({**price.terms, "offload": float(seconds.max())})


def compose(problem: Problem, groups: Sequence[GroupPrice]) -> PlanPrice:
    """Price the plan these groups make."""
    rollout = sum(g.rollout_s for g in groups)
    inference, training = max(g.inference_s for g in groups), max(g.training_s for g in groups)
    layouts = {name: layout for g in groups for name, layout in g.layouts.items()}
    update = weight_update_s(problem, actor=layouts["actor_training"], rollout=layouts["rollout"])
    overhead = problem.calibration.overhead_s if problem.calibration else 0.0
    beside = problem.job.mode == "async"
    alone = max(rollout, inference + training) if beside else rollout + inference + training
    overflow = max(max(g.overflow for g in groups), _host_overflow(problem, groups))
    return PlanPrice(
        groups=tuple(groups), iteration_s=alone + update + overhead, weight_update_s=update, overhead_s=overhead, overflow=overflow
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


def _host_overflow(problem: Problem, groups: Sequence[GroupPrice]) -> float:
    have = problem.fleet.host_memory_bytes
    need = host_bytes(problem, groups)
    return max(0.0, _beyond(float(((need - have * (1 - problem.engine.memory.reserve)) / np.maximum(have, 1.0)).max())))
