"""Memory of a group: what its tasks hold on each device all the time, what each needs while it runs, what is left for the KV cache."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from artifacts.job import ROLE_OF_TASK
from tests.stages.schedule.reference.memory import (
    activation_bytes,
    forward_bytes,
    held_params,
    in_flight_micro_batches,
    logits_bytes,
    training_state_bytes_per_param,
)
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem, Task

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


def holds_weights(task: str, group: tuple[str, ...]) -> bool:
    """Whether a task keeps weights of its own: inference of a role that the group also trains uses the trained ones."""
    trained = {ROLE_OF_TASK[t] for t in group if t.endswith("_training")}
    return task.endswith("_training") or task == "rollout" or ROLE_OF_TASK[task] not in trained


def stage_memory(
    problem: Problem,
    task: Task,
    *,
    layers: int,
    stage: int,
    stages: int,
    tp: int,
    dp: int,
    micro: int,
    micro_batches: int,
    own_weights: bool,
) -> tuple[dict[str, float], float]:
    """(resident by term, working) bytes of one rank of a stage. Linear in ``layers``. Memoised: do not change what it returns."""
    last, in_flight = stage == stages - 1, in_flight_micro_batches(stage=stage, stages=stages, micro_batches=micro_batches)
    key = (task.name, layers, stage == 0, last, in_flight, tp, dp, micro, own_weights)
    found = problem.stage_memory_memo.get(key)
    if found is None:
        found = problem.stage_memory_memo[key] = _stage_memory(
            problem,
            task,
            layers=layers,
            first=stage == 0,
            last=last,
            in_flight=in_flight,
            tp=tp,
            dp=dp,
            micro=micro,
            own_weights=own_weights,
        )
    return found


def _stage_memory(
    problem: Problem, task: Task, *, layers: int, first: bool, last: bool, in_flight: int, tp: int, dp: int, micro: int, own_weights: bool
) -> tuple[dict[str, float], float]:
    model, w, engine, job = task.model, problem.element_bytes, problem.engine, problem.job
    params = held_params(model, layers=layers, first=first, last=last, value_head=task.value_head) / tp
    tokens = micro * problem.work.sequence_tokens
    logits = logits_bytes(vocab=model.vocab, tokens=tokens, tp=tp, training=task.training) if last and not task.value_head else 0.0
    if not task.training:
        resident = {"weights": params * w} if own_weights else {}
        return resident, forward_bytes(model, tokens=tokens, tp=tp, element_bytes=w) + logits
    shards = dp if engine.optimizer_sharded else 1
    state = training_state_bytes_per_param(element_bytes=w, gradient_bytes=engine.gradient_bytes, optimizer_shards=shards)
    resident = {
        "weights": params * w,
        "gradients": params * engine.gradient_bytes,
        "optimizer": params * (state - w - engine.gradient_bytes),
    }
    kept = activation_bytes(
        layers=layers,
        in_flight=in_flight,
        tokens=problem.work.sequence_tokens,
        micro=micro,
        hidden=model.hidden,
        heads=model.heads,
        tp=tp,
        recompute=job.engine.recompute,
        element_bytes=w,
        flash_attention=engine.flash_attention,
    )
    return resident, kept + logits


def rollout_weight_bytes(problem: Problem, tp: int) -> float:
    """Weights of one shard of a generation replica (one stage holds the whole model)."""
    return problem.task("rollout").model.params() * problem.element_bytes / tp


def layer_bounds(problem: Problem, group: tuple[str, ...], leaders: dict[str, str], *, ranks: Ints, micro: int, rollout_tp: int) -> Floats:
    """Largest fraction of its layers each stage can hold, ``[pp]``, if every task of the group splits its layers alike."""
    dp, pp, tp = ranks.shape
    usable = problem.usable_bytes[ranks].min(axis=(0, 2))
    engine = problem.engine.memory
    fixed, slope = np.full(pp, float(engine.per_rank_bytes)), np.zeros(pp)
    if rollout_tp:
        fixed += rollout_weight_bytes(problem, rollout_tp) + engine.per_rank_bytes + engine.generation_bytes
    together = not problem.job.engine.offload
    for j in range(pp):
        held_fixed = held_slope = work_fixed = work_slope = 0.0
        for name in leaders:
            task, own = problem.task(name), holds_weights(name, group)
            (one, needs), (two, needs_two) = (
                stage_memory(problem, task, layers=n, stage=j, stages=pp, tp=tp, dp=dp, micro=micro, micro_batches=pp, own_weights=own)
                for n in (1, 2)
            )
            grows, works = sum(two.values()) - sum(one.values()), needs_two - needs
            start = sum(one.values()) - grows
            if together:
                held_fixed, held_slope = held_fixed + start, held_slope + grows * task.model.layers
                start = grows = 0.0
            work_fixed, work_slope = max(work_fixed, start + needs - works), max(work_slope, (grows + works) * task.model.layers)
        fixed[j] += held_fixed + work_fixed
        slope[j] += held_slope + work_slope
    return np.clip((usable - fixed) / np.maximum(slope, 1.0), 0.0, 1.0)  # type: ignore[no-any-return]


class MemoryLedger:
    """Adds up a group's memory while it is laid out."""

    def __init__(self, problem: Problem, group: tuple[str, ...], devices: Ints) -> None:
        self._problem, self._group = problem, group
        self._slot = np.full(problem.fleet.size, -1, dtype=np.int64)
        self._slot[devices] = np.arange(len(devices))
        self._offload = np.array([problem.job.engine.offload and not problem.fleet.memory_is_host[d] for d in devices])
        self.memory = GroupMemory(devices=devices)

    def process(self, name: str, ranks: Ints) -> None:
        """A process on each rank: its context and communication buffers."""
        self._resident(f"{name}.process", ranks, np.full(ranks.shape[:2], float(self._problem.engine.memory.per_rank_bytes)))

    def model_task(self, task: Task, layout: Layout) -> None:
        dp, pp, tp = layout.ranks.shape
        own = holds_weights(task.name, self._group)
        terms: dict[str, Floats] = {}
        working = np.zeros((dp, pp))
        for micro in set(layout.micro):
            rows = [i for i, m in enumerate(layout.micro) if m == micro]
            for j, layers in enumerate(layout.layers):
                resident, needs = stage_memory(
                    self._problem,
                    task,
                    layers=layers,
                    stage=j,
                    stages=pp,
                    tp=tp,
                    dp=dp,
                    micro=micro,
                    micro_batches=layout.micro_batches,
                    own_weights=own,
                )
                working[rows, j] = needs
                for term, bytes_ in resident.items():
                    terms.setdefault(term, np.zeros((dp, pp)))[rows, j] = bytes_
        moved = np.zeros(len(self._offload))
        for term, held in terms.items():
            moved += self._movable(f"{task.name}.{term}", layout.ranks, held)
        self.memory.working[task.name] = self._spread(layout.ranks, working) + moved

    def rollout_weights(self, ranks: Ints) -> None:
        tp = ranks.shape[2]
        held = np.full(ranks.shape[:2], rollout_weight_bytes(self._problem, tp))
        moved = self._movable("rollout.weights", ranks, held)
        fixed = self._spread(ranks, np.full(ranks.shape[:2], float(self._problem.engine.memory.generation_bytes)))
        self.memory.working["rollout"] = fixed + moved

    def kv_budget(self, ranks: Ints) -> Floats:
        """Bytes left for the KV cache on each shard of each replica: the scarcest shard's, ``[replicas]``."""
        free = self._problem.usable_bytes[self.memory.devices] - self.memory.resident_sum() - self.memory.working["rollout"]
        return free[self._slot[ranks]].min(axis=(1, 2))  # type: ignore[no-any-return]

    def kv(self, ranks: Ints, held: Floats) -> None:
        self.memory.working["rollout"] = self.memory.working["rollout"] + self._spread(ranks, held[:, None])

    def _spread(self, ranks: Ints, held: Floats) -> Floats:
        out = np.zeros(len(self._offload))
        out[self._slot[ranks]] = held[..., None]
        return out

    def _resident(self, key: str, ranks: Ints, held: Floats) -> None:
        self.memory.resident[key] = self._spread(ranks, held)

    def _movable(self, key: str, ranks: Ints, held: Floats) -> Floats:
        """Keep on the device, or with offload in the machine's memory between phases; returns what moves in while the task runs."""
        spread = self._spread(ranks, held)
        self.memory.resident[key] = np.where(self._offload, 0.0, spread)
        moved = np.where(self._offload, spread, 0.0)
        if self._offload.any():
            self.memory.offloaded[key] = moved
        return moved
