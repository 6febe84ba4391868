"""A whole plan: its groups, each an exclusive resource, and the iteration they make together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.schedule.draft import Layout
from stages.schedule.problem import ACTOR_LOG_PROB, Problem
from tests.stages.schedule.reference.fleet import Fleet
from tests.stages.schedule.reference.generation import Admission, admit, rollout_terms
from tests.stages.schedule.reference.memory import ByDevice, GroupMemory, borrows_weights, group_memory, weights_moved
from tests.stages.schedule.reference.reshard import weight_update_s
from tests.stages.schedule.reference.tasks import Terms, inference_terms, training_terms

ROUNDING = 1e-6
"""Relative lack of memory that is nothing but rounding."""


@dataclass(frozen=True)
class GroupPrice:
    terms: dict[str, Terms]
    """Seconds by task and term"""
    memory: GroupMemory
    in_flight: list[int]
    overflow: float
    """The worst device's lack of memory over its capacity"""

    def seconds(self, *tasks: str) -> float:
        return sum(sum(self.terms[t].values()) for t in tasks if t in self.terms)


@dataclass(frozen=True)
class PlanPrice:
    groups: list[GroupPrice]
    iteration_s: float
    update_s: float
    overflow: float


INFERENCE = ("reward_inference", "reference_inference", "critic_inference", ACTOR_LOG_PROB)
TRAINING = ("actor_training", "critic_training")


def price(problem: Problem, groups: Sequence[Mapping[str, Layout]]) -> PlanPrice:
    """Price a plan given as the layouts of its tasks by group.

    Synchronous: rollout, then all inference, then all training, then the weight update. Asynchronous: rollout beside the rest, then the
    weight update. Tasks of a group run one after the other, groups at the same time.
    """
    fleet = Fleet.of(problem)
    priced = [price_group(problem, fleet, layouts) for layouts in groups]
    rollout = max(g.seconds("rollout") for g in priced)
    rest = max(g.seconds(*INFERENCE) for g in priced) + max(g.seconds(*TRAINING) for g in priced)
    layouts = {name: layout for group in groups for name, layout in group.items()}
    update = weight_update_s(problem, fleet, actor=layouts["actor_training"], rollout=layouts["rollout"])
    learned, overhead = problem.calibration, 0.0
    if learned:  # every call takes the driver alike: the tasks, old log-probabilities, the weight update
        overhead = learned.overhead_s * ((len(problem.tasks) + 2) / learned.overhead_calls if learned.overhead_calls else 1)
    alone = max(rollout, rest) if problem.job.mode == "async" else rollout + rest
    return PlanPrice(
        groups=priced,
        iteration_s=alone + update + overhead,
        update_s=update,
        overflow=max(host_lack(problem, fleet, priced), *(g.overflow for g in priced)),
    )


def price_group(problem: Problem, fleet: Fleet, layouts: Mapping[str, Layout]) -> GroupPrice:
    memory = group_memory(problem, fleet, layouts)
    admission = Admission([], [], 0.0)
    terms: dict[str, Terms] = {}
    for name, layout in layouts.items():
        task = problem.task(name)
        if name == "rollout":
            admission = admit(problem, fleet, layout, memory)
            for i, replica in enumerate(layout.ranks.tolist()):
                for shards, kv in zip(replica, admission.kv[i], strict=True):
                    for device in shards:
                        memory.working[name][device] += kv
            terms[name] = rollout_terms(problem, fleet, layout, admission.in_flight)
        elif task.training:
            terms[name] = training_terms(problem, fleet, task, layout)
        else:
            terms[name] = inference_terms(problem, fleet, task, layout, factor_of=name)
        if name == "actor_training":
            terms[ACTOR_LOG_PROB] = inference_terms(problem, fleet, task, layout, factor_of=ACTOR_LOG_PROB)
            terms[ACTOR_LOG_PROB]["offload"] = offload_s(fleet, weights_moved(problem, fleet, task, layout))
        borrows = borrows_weights(name, layouts)
        moved = weights_moved(problem, fleet, task, layout) if borrows else memory.offloaded[name]
        terms[name]["offload"] = offload_s(fleet, moved)
    devices = {d for layout in layouts.values() for d in layout.devices()}
    lack = max((memory.peak(d) - fleet.usable[d]) / fleet.capacity[d] for d in devices)
    return GroupPrice(terms, memory, admission.in_flight, max(admission.lack, _beyond_rounding(lack)))


def offload_s(fleet: Fleet, offloaded: ByDevice) -> float:
    """The way in and out over the host link for what waits in the machine's memory between phases; all devices at one time."""
    return max((2 * bytes_ / fleet.host_rate[d] for d, bytes_ in offloaded.items()), default=0.0)


def host_lack(problem: Problem, fleet: Fleet, groups: Sequence[GroupPrice]) -> float:
    """The worst machine's own lack of memory, relative: what it holds for its GPUs, and what its CPU devices need."""
    need: dict[int, float] = defaultdict(float)
    for group in groups:
        for offloaded in group.memory.offloaded.values():
            for device, bytes_ in offloaded.items():
                need[fleet.machine[device]] += bytes_
        for device in {d for working in group.memory.working.values() for d in working if fleet.on_host[d]}:
            need[fleet.machine[device]] += group.memory.peak(device)
    reserve = problem.engine.memory.reserve
    return (
        max(_beyond_rounding((n - fleet.host_memory[m] * (1 - reserve)) / max(fleet.host_memory[m], 1.0)) for m, n in need.items())
        if need
        else 0.0
    )


def _beyond_rounding(lack: float) -> float:
    return lack if lack > ROUNDING else 0.0
