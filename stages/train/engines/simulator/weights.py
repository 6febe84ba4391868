"""Bringing trained weights to the rollout replicas."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from stages.train.engines.simulator.collectives import hops
from stages.train.engines.simulator.graph import Graph, Label
from stages.train.engines.simulator.setting import WEIGHT_UPDATE, Setting


def add_weight_update(graph: Graph, setting: Setting, *, number: int) -> None:
    """Every machine with rollout replicas fetches the layers stage by stage, as they are sent, from the nearest machine that holds them;
    machines fetch at the same time. A tensor-parallel replica spread over machines brings each only its part. Then each device gets from
    its neighbours what its own rank does not hold, and writes its shard to its memory."""
    actor, rollout, network = setting.tasks["actor_training"], setting.tasks["rollout"], setting.network
    label = Label(WEIGHT_UPDATE, "transfer", number)
    receivers: dict[int, list[int]] = defaultdict(list)
    for d in rollout.devices:
        receivers[network.machine[d]].append(d)
    both = tuple(sorted({*actor.devices, *rollout.devices}))
    begin = graph.add(Label(WEIGHT_UPDATE, "begin", number), both)
    _add_export(graph, setting, label, begin)
    for machine, devices in receivers.items():
        share = min(1.0, len(devices) / rollout.strategy.tp)
        for j in range(actor.strategy.pp):
            bytes_ = actor.params(j) * actor.strategy.tp * setting.element_bytes * share
            source = _nearest(setting, j, machine, bytes_)
            if network.machine[source] != machine:
                exchange = hops(network, [(source, devices[0], bytes_)])
                graph.add(label, tuple(devices), busy_s=exchange.alone_s, flows=exchange.flows, after=[begin])
        _add_inside(graph, setting, machine, devices, label)
    graph.add(Label(WEIGHT_UPDATE, "end", number), both)


def _add_export(graph: Graph, setting: Setting, label: Label, begin: int) -> None:
    """The replicas go through their tensors, one after the other: their hosts handle each, and stages tell each other which it is, there
    and back."""
    export, actor, network = setting.engine.export, setting.tasks["actor_training"], setting.network
    slow = setting.devices.host_slowness(actor.devices, stated_flops_per_s=setting.engine.host_flops_per_s)
    for stages in actor.units:
        each = slow * export.tensor_s
        if len(stages) > 1:
            there = sum(network.link(network.machine[a[0]], network.machine[b[0]])[0] for a, b in pairwise(stages))
            each += export.collectives * (slow * export.collective_s + 2 * there)
        if each:
            graph.add(label, tuple(d for stage in stages for d in stage), busy_s=actor.model.weight_tensors() * each, after=[begin])


def _nearest(setting: Setting, stage: int, machine: int, bytes_: float) -> int:
    """A device that holds the stage, nearest to the machine."""
    network = setting.network

    def seconds(device: int) -> float:
        source = network.machine[device]
        if source == machine:
            return 0.0
        if not network.joined(source, machine):
            return float("inf")
        latency, bandwidth = network.link(source, machine)
        return latency + bytes_ / bandwidth

    return min((stages[stage][0] for stages in setting.tasks["actor_training"].units), key=seconds)


def _add_inside(graph: Graph, setting: Setting, machine: int, devices: list[int], label: Label) -> None:
    actor, rollout, network = setting.tasks["actor_training"], setting.tasks["rollout"], setting.network
    needed = setting.element_bytes * rollout.model.params() / rollout.strategy.tp
    trains = set(actor.devices)
    came_from_outside = all(network.machine[d] != machine for d in trains)
    for d in devices:
        missing = 1.0 - 1.0 / (actor.strategy.pp * actor.strategy.tp) if d in trains else 1.0
        if came_from_outside and len(devices) == 1:
            missing = 0.0
        latency, bandwidth = network.link(machine, machine) if missing else (0.0, 1.0)
        inside = latency + missing * needed / bandwidth
        graph.add(label, (d,), busy_s=inside + needed / setting.devices.read_bytes_per_s((d,)))
