"""Ranks launched where the plan wants them, and the proof that they are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from artifacts.deployment import RankPlacement
from artifacts.errors import ClusterChanged
from artifacts.plan import Group, Plan
from artifacts.topology import Topology
from stages.cluster import Cluster, Found, pinned_groups, probe, remove_groups
from stages.deploy.parameters import Parameters


def place_and_prove(cluster: Cluster, plan: Plan, parameters: Parameters, *, tell: Callable[[str], None]) -> list[RankPlacement]:
    """Place every group of the plan at once (they must all fit together), then ask each rank where it is.

    Raises:
        StageTimeout: a group was not placed, or did not answer, in time.
        ClusterChanged: a rank is not where the plan puts it.
    """
    held: dict[str, list[Any]] = {}
    try:
        for group in plan.groups:
            tell(f"placing {len(group.devices)} ranks of group {group.name}")
            held[group.name] = pinned_groups(cluster, group.devices, name=group.name, cpus_per_rank=parameters.cpus_per_rank,
                                             deadline_s=parameters.placement_deadline_s)
        ranks = []
        for group in plan.groups:
            tell(f"asking the {len(group.devices)} ranks of group {group.name} where they are")
            found = probe(cluster, held[group.name], deadline_s=parameters.probe_deadline_s)
            prove(cluster.topology, group, found)
            ranks += ranks_of(plan, group, {f.device: f for f in found})
        return ranks
    finally:
        for groups in held.values():
            remove_groups(groups)


def prove(topology: Topology, group: Group, found: list[Found]) -> None:
    """Compare what the processes found with the plan; every rank that differs is named."""
    wrong = []
    for device_id, at in zip(group.devices, found, strict=True):
        wanted = topology.device(device_id)
        if (at.machine, at.device, at.device_uuid) != (wanted.machine, wanted.id, wanted.uuid):
            there = f"{at.machine}/{at.device or 'an unknown device'} ({at.device_uuid or 'no UUID'})"
            wrong.append(f"rank {at.rank} of group {group.name} is on {there}, planned on {wanted.machine}/{wanted.id} ({wanted.uuid})")
    if wrong:
        raise ClusterChanged("ranks are not where the plan puts them: " + "; ".join(wrong), fix="run profile and schedule again",
                             details={"wrong": wrong})


def ranks_of(plan: Plan, group: Group, found: Mapping[str, Found]) -> list[RankPlacement]:
    """Every rank of every task of the group. Tasks of a group share its bundles, so what a bundle's process found holds for all."""
    return [
        RankPlacement(task=task, rank=rank, machine=(at := found[device]).machine, device=at.device, device_uuid=at.device_uuid,
                      ray_node_id=at.node_id, pid=at.pid)
        for task in group.tasks for rank, device in enumerate(plan.tasks[task].ranks)
    ]
