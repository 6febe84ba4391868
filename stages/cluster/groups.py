"""One placement group a rank, pinned to the machine and device the plan gives it."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from artifacts.errors import ClusterChanged, InputError, StageTimeout
from artifacts.topology import Device
from stages.cluster.names import MACHINE_SHARE, device_resource, machine_resource
from stages.cluster.probe import nvml_uuid, probe
from stages.cluster.session import Cluster
from stages.cluster.unnamed import sort_out

# Waits are cut into slices: a signal is only seen between two of them.
_SLICE_S = 0.2


def pinned_groups(cluster: Cluster, devices: Sequence[str], *, name: str, cpus_per_rank: float = 1, colocated: int = 1,
                  deadline_s: float = 60, uuid_of: Callable[[str], str] = nvml_uuid) -> list[Any]:
    """A single-bundle placement group for each of ``devices``: index r is rank r, on exactly that device.

    ``colocated`` is how many actors share a bundle (each ``cpus_per_rank`` CPUs and a fraction of the GPU). CPU devices are
    told apart by the resource ``device:<id>`` of their node; GPUs by UUID (``uuid_of`` runs in the bundle).

    Raises:
        InputError: a device the topology does not have, or one twice.
        ClusterChanged: a node does not declare its CPU devices, or a GPU of that UUID is not there.
        StageTimeout: not all placed in time; the groups that were made are removed, and the message says which node falls short.
    """
    if len(set(devices)) != len(devices):
        raise InputError(f"{name}: a device is named twice in {list(devices)}", fix="one rank a device")
    known = [_device(cluster, d) for d in devices]
    cpus = cpus_per_rank * colocated
    if all(d.vendor == "cpu" for d in known):
        bundles = [_named_bundle(cluster, d, cpus=cpus) for d in known]
        return _placed(cluster, [(d.machine, b) for d, b in zip(known, bundles, strict=True)], name=name, deadline_s=deadline_s)

    def reserve(machine: str, count: int) -> list[Any]:
        return _placed(cluster, [(machine, _bundle(cluster, machine, cpus=cpus))] * count, name=name, deadline_s=deadline_s)

    def free(machine: str) -> int:
        return int(_free(cluster).get(machine, {}).get("GPU", 0))

    return sort_out([(d.machine, d.id) for d in known], reserve=reserve, free=free, remove=remove_groups, deadline_s=deadline_s,
                    identify=lambda held: [f.device for f in probe(cluster, held, deadline_s=deadline_s, uuid_of=uuid_of)])


def remove_groups(groups: Sequence[Any]) -> None:
    """Give the devices back; actors in the groups end with them."""
    from ray.util.placement_group import remove_placement_group

    for group in groups:
        remove_placement_group(group)


def _device(cluster: Cluster, device: str) -> Device:
    try:
        return cluster.topology.device(device)
    except StopIteration:
        raise InputError(f"cluster {cluster.topology.cluster.name} has no device {device!r}",
                         fix="it has " + ", ".join(d.id for d in cluster.topology.devices)) from None


def _bundle(cluster: Cluster, machine: str, *, cpus: float) -> dict[str, float]:
    share = {machine_resource(machine): MACHINE_SHARE} if machine_resource(machine) in cluster.resources_by_machine[machine] else {}
    return {"CPU": cpus, "GPU": 1.0, **share}


def _named_bundle(cluster: Cluster, device: Device, *, cpus: float) -> dict[str, float]:
    resource = device_resource(device.id)
    if resource not in cluster.resources_by_machine[device.machine]:
        raise ClusterChanged(f"the Ray node of {device.machine} does not declare device {device.id}",
                             fix=f"start it with \"{resource}\": 1 among its --resources, or run profile and schedule again")
    return {**_bundle(cluster, device.machine, cpus=cpus), resource: 1.0}


def _placed(cluster: Cluster, wanted: Sequence[tuple[str, dict[str, float]]], *, name: str, deadline_s: float) -> list[Any]:
    from ray.util.placement_group import placement_group

    groups: list[Any] = []
    run = secrets.token_hex(4)  # Ray wants names that are unique in the cluster, whoever else uses it
    try:
        for rank, (machine, bundle) in enumerate(wanted):
            groups.append(placement_group([bundle], strategy="STRICT_PACK", name=f"{name}-{run}-{rank}",
                                          bundle_label_selector=[{"ray.io/node-id": cluster.node_ids[machine]}]))
        late = _wait(groups, deadline_s)
        if late:
            raise StageTimeout(f"{name}: {len(late)} of {len(wanted)} ranks not placed within {deadline_s:g} s. "
                               + _shortage(cluster, [wanted[r] for r in late]),
                               fix="free the devices, bring the node back, or run profile and schedule again for what is there",
                               details={"ranks": late, "machines": sorted({wanted[r][0] for r in late})})
    except BaseException:
        remove_groups(groups)
        raise
    return groups


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


def _free(cluster: Cluster) -> dict[str, Mapping[str, float]]:
    """Machine → what its node has left; machines whose node is dead are left out."""
    import ray

    left = ray._private.state.available_resources_per_node()
    alive = {n["NodeID"] for n in ray.nodes() if n["Alive"]}
    return {machine: left.get(node, {}) for machine, node in cluster.node_ids.items() if node in alive}


def _shortage(cluster: Cluster, pending: Sequence[tuple[str, dict[str, float]]]) -> str:
    """What was asked, what is there, which node falls short."""
    free = _free(cluster)
    by_machine: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for machine, bundle in pending:
        for resource, amount in bundle.items():
            by_machine[machine][resource] += amount
    parts = []
    for machine, asked in by_machine.items():
        if machine not in free:
            parts.append(f"{machine}: its Ray node is dead")
            continue
        declared = cluster.resources_by_machine[machine]
        short = [f"{_unit(r)}: asked {a:g}, free {free[machine].get(r, 0):g} of {declared.get(r, 0):g}"
                 for r, a in asked.items() if a > free[machine].get(r, 0)]
        parts.append(f"{machine} falls short of " + ("; ".join(short) or "nothing by now, but Ray had not placed them"))
    return ". ".join(parts)


def _unit(resource: str) -> str:
    return resource.replace(":", " ")
