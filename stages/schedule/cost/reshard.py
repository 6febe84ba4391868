"""Bringing the trained weights to the rollout replicas: who fetches which layers from whom, and how long that takes."""

from __future__ import annotations

from collections import defaultdict

from stages.schedule.cost.memory import held_params
from stages.schedule.draft import Layout
from stages.schedule.problem import WEIGHT_UPDATE, Problem


def weight_update_s(problem: Problem, *, actor: Layout, rollout: Layout) -> float:
    """Seconds of one weight update: max over receiving machines of Σ over stages (α + bytes/β), and over sending machines likewise.

    A machine fetches each layer once, from the nearest replica of the actor that holds it, and writes its own shards at memory speed;
    a tensor-parallel replica that spans machines brings each only its part.
    """
    fleet, model, w = problem.fleet, problem.task("rollout").model, problem.element_bytes
    receivers: dict[int, list[int]] = defaultdict(list)
    for device in rollout.devices():
        receivers[int(fleet.machine[device])].append(device)
    sending: dict[int, float] = defaultdict(float)
    slowest = 0.0
    for machine, devices in receivers.items():
        share = min(1.0, len(devices) / rollout.tp)
        spent = 0.0
        for stage, layers in enumerate(actor.layers):
            bytes_ = share * w * held_params(model, layers=layers, first=stage == 0, last=stage == actor.pp - 1, value_head=False)
            holders = [int(d) for d in actor.ranks[:, stage, 0]]
            seconds, holder = min((_transfer_s(problem, source, devices, bytes_), source) for source in holders)
            spent += seconds
            if int(fleet.machine[holder]) != machine:
                sending[int(fleet.machine[holder])] += seconds
        written = w * model.params() / rollout.tp / float(fleet.hbm_bytes_per_s[devices].min())
        slowest = max(slowest, spent + written)
    factor = float(problem.factors(WEIGHT_UPDATE)[rollout.ranks].max())
    return factor * max(slowest, max(sending.values(), default=0.0))


def _transfer_s(problem: Problem, source: int, targets: list[int], bytes_: float) -> float:
    """From a device to the nearest of some devices; nothing to send where the source is one of them."""
    if source in targets:
        return 0.0
    fleet = problem.fleet
    return min(float(fleet.latency_s[source, t] + bytes_ * fleet.inverse_bandwidth[source, t]) for t in targets)
