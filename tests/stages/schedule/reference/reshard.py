"""Bringing the trained weights to the rollout replicas: who fetches which layers from whom, and how long that takes."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from stages.schedule.draft import Layout
from stages.schedule.problem import WEIGHT_UPDATE, Problem
from tests.stages.schedule.reference.fleet import Fleet
from tests.stages.schedule.reference.memory import stage_params


def weight_update_s(problem: Problem, fleet: Fleet, *, actor: Layout, rollout: Layout) -> float:
    """max over receiving machines: all they get through their port, or over the link from the busiest source Σ over the actor's stages
    (α + bytes/β); then the way inside and the write. And over sending machines: all they send through their port.

    A machine that holds a stage on any replica's first shard has it; else it fetches its share of it once, from the nearest such holder.
    A rollout replica that spans machines brings each only its part. Inside a machine each device gets what its own rank does not hold
    over the link between devices, and writes its shard at memory speed.
    """
    w, task, machine = problem.element_bytes, problem.task("actor_training"), fleet.machine
    cut = rollout.pp * rollout.tp
    needed = w * task.model.params() / cut
    receivers: dict[int, list[int]] = defaultdict(list)
    for device in rollout.devices():
        receivers[machine[device]].append(device)
    sent: dict[int, float] = defaultdict(float)
    slowest = 0.0
    for here, devices in receivers.items():
        by_source: dict[int, float] = defaultdict(float)
        received = 0.0
        for j, layers in enumerate(actor.layers):
            bytes_ = min(1.0, len(devices) / cut) * w * stage_params(task, layers, first=j == 0, last=j == actor.pp - 1)
            holders = [machine[d] for d in actor.ranks[:, j, 0].tolist()]
            if here not in holders:
                seconds, source = min((fleet.latency[m][here] + bytes_ * fleet.inverse[m][here], i) for i, m in enumerate(holders))
                by_source[holders[source]] += seconds
                sent[holders[source]] += bytes_
                received += bytes_
        fetched = max([*by_source.values(), received * fleet.receives[here]])
        slowest = max(slowest, fetched + _inside_s(fleet, actor, here, devices, needed) + needed / fleet.slowest_memory(devices))
    sending = max((bytes_ * fleet.sends[m] for m, bytes_ in sent.items()), default=0.0)
    factor = max(problem.factors(WEIGHT_UPDATE)[d] for d in rollout.devices())
    return float(factor * (max(slowest, sending) + _export_s(problem, fleet, actor)))


def _export_s(problem: Problem, fleet: Fleet, actor: Layout) -> float:
    """Every tensor's time on the slowest host; in stages also of its collectives, each of them two messages on every hop of the longest way."""
    export, tensors = problem.engine.export, problem.task("actor_training").model.weight_tensors()
    host = tensors * export.tensor_s
    if actor.pp == 1:
        return fleet.slowest_host(actor.devices()) * host
    ways = [sum(fleet.latency[a][b] for a, b in pairwise(fleet.machine[d] for d in stages)) for stages in actor.ranks[:, :, 0].tolist()]
    count = tensors * export.collectives
    return fleet.slowest_host(actor.devices()) * (host + count * export.collective_s) + 2 * count * max(ways)


def _inside_s(fleet: Fleet, actor: Layout, here: int, devices: list[int], needed: float) -> float:
    """All but what the actor's rank on the same device holds. The one device that fetched everything from elsewhere needs nothing more."""
    holders = set(actor.devices())
    if len(devices) == 1 and all(fleet.machine[d] != here for d in holders):
        return 0.0
    missing = 1.0 - 1.0 / (actor.pp * actor.tp) if set(devices) <= holders else 1.0
    return fleet.latency[here][here] + missing * needed * fleet.inverse[here][here] if missing else 0.0
