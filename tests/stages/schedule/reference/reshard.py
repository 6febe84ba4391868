"""Bringing the trained weights to the rollout replicas: who fetches which layers from whom, and how long that takes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tests.stages.schedule.reference.memory import held_params
from stages.schedule.draft import Layout
from stages.schedule.problem import WEIGHT_UPDATE, Problem


def weight_update_s(problem: Problem, *, actor: Layout, rollout: Layout) -> float:
    """Seconds of one weight update: max over receiving machines of Σ over stages (α + bytes/β), and over sending machines likewise.

    A machine fetches each layer it has not once, from the nearest replica of the actor that holds it; inside the machine each device gets
    what its own rank does not hold over the link between them, and writes its shard at memory speed. A tensor-parallel replica that spans
    machines brings each only its part.
    """
    fleet, model, w, last = problem.fleet, problem.task("rollout").model, problem.element_bytes, actor.pp - 1
    receivers: dict[int, list[int]] = defaultdict(list)
    for device in rollout.devices():
        receivers[int(fleet.machine[device])].append(device)
    held = [held_params(model, layers=n, first=j == 0, last=j == last, value_head=False) for j, n in enumerate(actor.layers)]
    bytes_ = w * np.array(held, dtype=float)
    holders = actor.ranks[:, :, 0]
    holder_machine = fleet.machine[holders]
    sending = np.zeros(len(fleet.machines))
    slowest = 0.0
    for machine, devices in receivers.items():
        share = min(1.0, len(devices) / rollout.tp)
        seconds = (
            fleet.machine_latency_s[holder_machine, machine] + share * bytes_ * fleet.machine_inverse_bandwidth[holder_machine, machine]
        )
        seconds = np.where(holder_machine == machine, 0.0, seconds)
        nearest = seconds.argmin(axis=0)
        stages = np.arange(actor.pp)
        spent, source = seconds[nearest, stages], holder_machine[nearest, stages]
        np.add.at(sending, source[source != machine], spent[source != machine])
        needed = w * model.params() / rollout.tp
        written = needed / float(fleet.hbm_bytes_per_s[devices].min())
        slowest = max(slowest, float(spent.sum()) + _inside_s(problem, actor, machine, devices, needed) + written)
    factor = float(problem.factors(WEIGHT_UPDATE)[rollout.ranks].max())
    return factor * max(slowest, float(sending.max()))


def _inside_s(problem: Problem, actor: Layout, machine: int, devices: list[int], needed: float) -> float:
    """Seconds until every device has its ``needed`` bytes from its neighbours: all but the part its own rank of the actor holds.

    Where the weights came from another machine, the one device that fetched them needs nothing more.
    """
    fleet = problem.fleet
    holds = bool((fleet.machine[actor.ranks] == machine).any())
    if not holds and len(devices) == 1:
        return 0.0
    ranked = set(devices) <= set(actor.devices())
    missing = 1.0 - 1.0 / (actor.pp * actor.tp) if ranked else 1.0
    if missing == 0.0:
        return 0.0
    return float(fleet.machine_latency_s[machine, machine] + missing * needed * fleet.machine_inverse_bandwidth[machine, machine])
