"""One placement group a rank, pinned to the machine and device the plan gives it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from artifacts.errors import InputError, StageTimeout
from stages.cluster.names import MACHINE_SHARE, device_resource, machine_resource
from stages.cluster.session import Cluster

__all__ = ["device_resource", "machine_resource", "pinned_groups", "remove_groups"]

# Waits are cut into slices: a signal is only seen between two of them.
_SLICE_S = 0.2


def bundle_of(cluster: Cluster, device: str, *, cpus: float) -> dict[str, float]:
    """What a rank on ``device`` reserves. The device itself is named only if its node declares it by name."""
    machine = _machine_of(cluster, device)
    declared = cluster.resources_by_machine[machine]
    bundle = {"CPU": cpus, "GPU": 1.0}
    if device_resource(device) in declared:
        bundle[device_resource(device)] = 1.0
    if machine_resource(machine) in declared:
        bundle[machine_resource(machine)] = MACHINE_SHARE
    return bundle


def pinned_groups(cluster: Cluster, devices: Sequence[str], *, name: str, cpus_per_rank: float = 1, colocated: int = 1,
                  deadline_s: float = 60) -> list[Any]:
    """A single-bundle placement group for each of ``devices``: index r is rank r, on exactly that device's machine.

    ``colocated`` is how many actors share a bundle (each ``cpus_per_rank`` CPUs and a fraction of the GPU). Where nodes do
    not name their devices (``device:<id>``), which of a machine's GPUs a group holds is Ray's choice: see ``probe``.

    Raises:
        InputError: a device the topology does not have, or one twice.
        StageTimeout: not all placed in time; the groups that were made are removed, and the message says which node falls short.
    """
    from ray.util.placement_group import placement_group

    if len(set(devices)) != len(devices):
        raise InputError(f"{name}: a device is named twice in {list(devices)}", fix="one rank a device")
    wanted = {d: bundle_of(cluster, d, cpus=cpus_per_rank * colocated) for d in devices}
    groups: list[Any] = []
    try:
        for rank, device in enumerate(devices):
            node = cluster.node_ids[_machine_of(cluster, device)]
            groups.append(placement_group([wanted[device]], strategy="STRICT_PACK", name=f"{name}-{rank}",
                                          bundle_label_selector=[{"ray.io/node-id": node}]))
        pending = _wait(groups, deadline_s)
        if pending:
            short = {devices[r]: wanted[devices[r]] for r in pending}
            raise StageTimeout(_shortage(cluster, name, short, total=len(devices), deadline_s=deadline_s),
                               fix="free the devices, bring the node back, or run profile and schedule again for what is there",
                               details={"pending": list(short)})
    except BaseException:
        remove_groups(groups)
        raise
    return groups


def remove_groups(groups: Sequence[Any]) -> None:
    """Give the devices back; actors in the groups end with them."""
    from ray.util.placement_group import remove_placement_group

    for group in groups:
        remove_placement_group(group)


def _wait(groups: list[Any], deadline_s: float) -> list[int]:
    """Ranks whose group is not placed when the deadline is over."""
    until = time.monotonic() + deadline_s
    pending = list(range(len(groups)))
    while pending:
        pending = [r for r in pending if not groups[r].wait(0 if len(pending) > 1 else _SLICE_S)]
        if time.monotonic() >= until:
            break
        time.sleep(0.02)
    return pending


def _machine_of(cluster: Cluster, device: str) -> str:
    try:
        return cluster.topology.device(device).machine
    except StopIteration:
        raise InputError(f"cluster {cluster.topology.cluster.name} has no device {device!r}",
                         fix="it has " + ", ".join(d.id for d in cluster.topology.devices)) from None


def _shortage(cluster: Cluster, name: str, pending: dict[str, dict[str, float]], *, total: int, deadline_s: float) -> str:
    """What was asked, what is there, which node falls short."""
    import ray

    free = ray._private.state.available_resources_per_node()
    alive = {n["NodeID"] for n in ray.nodes() if n["Alive"]}
    by_machine: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for device, bundle in pending.items():
        for resource, amount in bundle.items():
            by_machine[_machine_of(cluster, device)][resource] += amount
    parts = []
    for machine, asked in by_machine.items():
        node = cluster.node_ids[machine]
        if node not in alive:
            parts.append(f"{machine}: its Ray node is dead")
            continue
        here, declared = free.get(node, {}), cluster.resources_by_machine[machine]
        short = [f"{r} asked {a:g}, free {here.get(r, 0):g} of {declared.get(r, 0):g}" for r, a in asked.items() if a > here.get(r, 0)]
        parts.append(f"{machine}: " + ("; ".join(short) or "enough is free now, but it was not placed in time"))
    return f"{name}: {len(pending)} of {total} ranks not placed within {deadline_s:g} s ({', '.join(pending)}). " + ". ".join(parts)
