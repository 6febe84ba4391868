"""What changed between two topologies of a cluster, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from artifacts.topology import Device, Topology
from artifacts.units import show_bytes, show_flops, show_rate, show_seconds

MEMORY_BIN = 2**26
"""Differences of memory below this do not move the fingerprint (see ``Topology.fingerprint_of``)."""
LISTED = 8


SameRate = Callable[[str, float, float], bool]
"""(name of a rate in the basis, value now, value before) → whether they are one rate."""


def describe_change(old: Topology, new: Topology, *, same: SameRate = lambda name, now, was: now == was) -> list[str]:
    """One line a change, the gravest first; empty when both are the same but for what ``same`` takes for noise."""
    lines = [*_machines(old, new), *_devices(old, new), *_probes(old, new), *_rates(old, new, same)]
    if not lines and old.fingerprint != new.fingerprint:
        lines.append("the cluster is described differently, though machines, devices and rates are the same")
    return lines


def _machines(old: Topology, new: Topology) -> Iterable[str]:
    before, after = {m.name: m for m in old.machines}, {m.name: m for m in new.machines}
    reasons = {u.machine: u.reason for u in new.unreachable}
    devices = Counter(d.machine for d in old.devices)
    added = Counter(d.machine for d in new.devices)
    for name in before.keys() - after.keys():
        if name in reasons:
            yield f"machine {name} cannot be reached ({reasons[name]}): {_count(devices[name], 'device')} left out"
        else:
            yield f"machine {name} is gone, with {_count(devices[name], 'device')}"
    for name in after.keys() - before.keys():
        yield f"machine {name} is new, with {_count(added[name], 'device')}"
    for name in before.keys() & after.keys():
        a, b = before[name], after[name]
        for what, was, now in (("region", a.region, b.region), ("zone", a.zone, b.zone), ("CPUs", a.cpus, b.cpus)):
            if was != now:
                yield f"machine {name}: {what} {was or 'none'} → {now or 'none'}"
        if a.host_memory_bytes // MEMORY_BIN != b.host_memory_bytes // MEMORY_BIN:
            yield f"machine {name}: host memory {show_bytes(a.host_memory_bytes)} → {show_bytes(b.host_memory_bytes)}"


def _devices(old: Topology, new: Topology) -> Iterable[str]:
    before, after = {d.id: d for d in old.devices}, {d.id: d for d in new.devices}
    stayed = {m.name for m in old.machines} & {m.name for m in new.machines}
    gone = [d for d in old.devices if d.id not in after and d.machine in stayed]
    fresh = [d for d in new.devices if d.id not in before and d.machine in stayed]
    yield from _listed([f"device {_name(d)} is gone from machine {d.machine}" for d in gone], "devices are gone")
    yield from _listed([f"device {_name(d)} is new in machine {d.machine}" for d in fresh], "devices are new")
    altered = [line for d in old.devices if d.id in after for line in _altered(d, after[d.id])]
    yield from _listed(altered, "changes of devices")


def _altered(a: Device, b: Device) -> Iterable[str]:
    if a.uuid != b.uuid:
        yield f"device {a.id} is another one: {a.name} ({a.uuid}) → {b.name} ({b.uuid})"
    for what, was, now in (("name", a.name, b.name), ("class", a.device_class, b.device_class), ("machine", a.machine, b.machine),
                           ("MIG parent", a.mig_parent, b.mig_parent), ("dtypes", " ".join(sorted(a.dtypes)), " ".join(sorted(b.dtypes))),
                           ("price an hour", a.price_per_hour, b.price_per_hour)):
        if was != now and not (what == "name" and a.uuid != b.uuid):
            yield f"device {a.id}: {what} {was if was not in (None, '') else 'none'} → {now if now not in (None, '') else 'none'}"
    if a.memory_bytes // MEMORY_BIN != b.memory_bytes // MEMORY_BIN:
        yield f"device {a.id}: memory {show_bytes(a.memory_bytes)} → {show_bytes(b.memory_bytes)}"


def _probes(old: Topology, new: Topology) -> Iterable[str]:
    """Links that can no longer be used, or can be again, between machines that are in both."""
    before, after = _probe_results(old), _probe_results(new)
    stayed = {m.name for m in old.machines} & {m.name for m in new.machines}
    for source, target in sorted(before.keys() | after.keys()):
        was, now = (found.get((source, target), "absent") for found in (before, after))
        if {source, target} <= stayed and (was in _UNUSABLE) != (now in _UNUSABLE):
            what = {"failed": "its probe failed", "absent": "not connected any more"}.get(now)
            yield f"link {source} → {target}: {what or ('its probe works again' if was == 'failed' else 'now connected')}"


_UNUSABLE = ("failed", "absent")


def _probe_results(topology: Topology) -> dict[tuple[str, str], str]:
    return {(k.source, k.target): k.probe for k in topology.links}


def _rates(old: Topology, new: Topology, same: SameRate) -> Iterable[str]:
    for name in sorted(old.basis.keys() & new.basis.keys()):
        was, now = old.basis[name], new.basis[name]
        if same(name, now, was):
            continue
        kind, _, what = name.partition(":")
        if kind == "latency":
            yield f"{_subject(kind, what)} latency {'higher' if now > was else 'lower'} ({show_seconds(was)} → {show_seconds(now)})"
        else:
            show = show_flops if kind in ("compute", "peak") else show_rate
            by = f"{abs(now / was - 1):.0%} {'better' if now > was else 'worse'}"
            yield f"{_subject(kind, what)} {_KINDS[kind]} {by} ({show(was)} → {show(now)})"
    for name in sorted(new.basis.keys() - old.basis.keys()):
        kind, _, what = name.partition(":")
        if " → " in what and what.split(" → ")[0] in {m.name for m in old.machines}:
            yield f"link {what}: {kind} far worse than its class"


_KINDS = {"compute": "compute", "peak": "peak compute", "memory": "memory bandwidth", "host": "host bandwidth", "bandwidth": "bandwidth"}


def _subject(kind: str, what: str) -> str:
    if kind in ("bandwidth", "latency"):
        return f"links {what}:" if " → " not in what else f"link {what}:"
    return f"class {what}:"


def _name(device: Device) -> str:
    return f"{device.id} ({device.name}, {show_bytes(device.memory_bytes)})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(lines: list[str], what: str) -> list[str]:
    return lines if len(lines) <= LISTED else [*lines[:LISTED], f"… and {len(lines) - LISTED} more {what}"]
