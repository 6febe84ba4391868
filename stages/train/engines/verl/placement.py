"""Which device each rank of each pool belongs on, and whether it is there."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from artifacts.errors import ClusterChanged
from artifacts.plan import Plan
from artifacts.topology import Topology
from stages.train.engines.verl.ranks import megatron_order

ROLES = {"actor": "actor_training", "critic": "critic_training", "reference": "reference_inference", "rollout": "rollout",
         "reward": "reward_inference"}
_IN_THE_ACTORS_WORKERS = ("reference", "rollout")
"""Roles that need no pool where they share the actor's group."""


@dataclass(frozen=True)
class PoolSpec:
    """A pool: its devices in Megatron's rank order, and the roles that live in its workers. ``processes``: workers that share a device, of
    this pool and others."""

    name: str
    devices: tuple[str, ...]
    roles: tuple[str, ...]
    processes: int = 1


def pools_of(plan: Plan) -> list[PoolSpec]:
    """One pool for each group, the roles of a group in one pool (and in the same processes). The rollout's are in the plan's order.

    A reward model beside others has processes of its own on their devices, and so a pool: verl makes no worker for it.
    """
    pools: dict[str, PoolSpec] = {}
    for role, task in ROLES.items():
        if task not in plan.tasks:
            continue
        group = plan.group_of(task).name
        if group in pools and role == "reward":
            pools[group] = replace(pools[group], processes=2)
            pools[f"{group}-reward"] = PoolSpec(f"{group}-reward", tuple(megatron_order(plan.tasks[task])), (role,), processes=2)
        elif group not in pools:
            strategy = plan.tasks[task]
            pools[group] = PoolSpec(group, tuple(strategy.ranks if role == "rollout" else megatron_order(strategy)), (role,))
        elif role not in _IN_THE_ACTORS_WORKERS:
            pools[group] = replace(pools[group], roles=(*pools[group].roles, role))
    return list(pools.values())


def here() -> dict[str, Any]:
    """Where this process sits: node, the CPU device its bundle holds as Ray has it or the GPU's UUID as its driver has it, process id."""
    import ray

    from stages.cluster.probe import nvml_uuid

    group = ray.util.get_current_placement_group()
    bundle = group.bundle_specs[0] if group is not None else {}
    device = next((name.removeprefix("device:") for name in bundle if name.startswith("device:")), "")
    uuid = "" if device else nvml_uuid(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0])
    return {"node_id": ray.get_runtime_context().get_node_id(), "device": device, "uuid": uuid, "pid": os.getpid()}


def compare(spec: PoolSpec, found: list[dict[str, Any]], *, topology: Topology, node_of_machine: dict[str, str]) -> None:
    """Hold what the workers report against the plan.

    Raises:
        ClusterChanged: a rank sits on another machine or device than planned; all of them are named.
    """
    by_uuid = {device.uuid: device.id for device in topology.devices if device.uuid}
    machine_of_node = {node: machine for machine, node in node_of_machine.items()}
    wrong = []
    for rank, (device, place) in enumerate(zip(spec.devices, found, strict=True)):
        machine = topology.device(device).machine
        at = machine_of_node.get(place["node_id"], place["node_id"][:12])
        held = place["device"] or by_uuid.get(place["uuid"], "")
        if (at, held) != (machine, device):
            wrong.append(f"rank {rank} of group {spec.name} is on {at}/{held or 'no device'}, planned on {machine}/{device}")
    if wrong:
        raise ClusterChanged("ranks are not where the plan puts them: " + "; ".join(wrong), fix="profile and schedule again")
