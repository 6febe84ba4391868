"""What differs between the topology a plan was made for and the one it is to be deployed on."""

from __future__ import annotations

from collections.abc import Iterator

from artifacts.topology import Device, Topology
from artifacts.units import show_bytes

_LISTED = 6


def differences(old: Topology, new: Topology) -> list[str]:
    """In words, gravest first; at most a handful, then how many more."""
    lines = [*_machines(old, new), *_devices(old, new), *_links(old, new), *_rates(old, new)]
    if len(lines) > _LISTED:
        lines = [*lines[:_LISTED], f"and {len(lines) - _LISTED} more"]
    return lines or ["the cluster is described differently"]


def _machines(old: Topology, new: Topology) -> Iterator[str]:
    before, after = {m.name: m for m in old.machines}, {m.name: m for m in new.machines}
    reasons = {u.machine: u.reason for u in new.unreachable}
    for name in sorted(before.keys() - after.keys()):
        yield f"machine {name} cannot be reached ({reasons[name]})" if name in reasons else f"machine {name} is gone"
    for name in sorted(after.keys() - before.keys()):
        yield f"machine {name} is new"
    for name in sorted(before.keys() & after.keys()):
        a, b = before[name], after[name]
        if a.cpus != b.cpus:
            yield f"machine {name} has {b.cpus} CPUs, had {a.cpus}"
        if a.host_memory_bytes // 2**26 != b.host_memory_bytes // 2**26:
            yield f"machine {name} has {show_bytes(b.host_memory_bytes)} of memory, had {show_bytes(a.host_memory_bytes)}"


def _devices(old: Topology, new: Topology) -> Iterator[str]:
    before, after = {d.id: d for d in old.devices}, {d.id: d for d in new.devices}
    for id_ in sorted(before.keys() - after.keys()):
        yield f"device {id_} ({before[id_].name}, {before[id_].uuid}) of machine {before[id_].machine} is gone"
    for id_ in sorted(after.keys() - before.keys()):
        yield f"device {id_} ({after[id_].name}) of machine {after[id_].machine} is new"
    for id_ in sorted(before.keys() & after.keys()):
        yield from _device(before[id_], after[id_])


def _device(a: Device, b: Device) -> Iterator[str]:
    if a.uuid != b.uuid:
        yield f"device {a.id} is another one ({b.uuid}, was {a.uuid})"
    if a.machine != b.machine:
        yield f"device {a.id} sits in machine {b.machine}, sat in {a.machine}"
    if a.device_class != b.device_class:
        yield f"device {a.id} is of class {b.device_class}, was {a.device_class}"
    if a.memory_bytes // 2**26 != b.memory_bytes // 2**26:
        yield f"device {a.id} has {show_bytes(b.memory_bytes)}, had {show_bytes(a.memory_bytes)}"
    if sorted(a.dtypes) != sorted(b.dtypes):
        yield f"device {a.id} computes in {'/'.join(b.dtypes)}, did in {'/'.join(a.dtypes)}"


def _links(old: Topology, new: Topology) -> Iterator[str]:
    for link in old.links:
        now = new.link(link.source, link.target)
        if link.probe != "failed" and (now is None or now.probe == "failed"):
            yield f"link {link.source} → {link.target} does not work any more"


def _rates(old: Topology, new: Topology) -> Iterator[str]:
    for name in sorted(old.basis.keys() | new.basis.keys()):
        a, b = old.basis.get(name), new.basis.get(name)
        if a != b:
            yield f"rate {name} is {_rate(b)}, was {_rate(a)}"


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
