"""The rates a fingerprint is made of, and what keeps noise from moving it.

A rate is anchored: a new measurement close enough to an earlier profile's anchor takes that anchor over, so an unchanged cluster
keeps its fingerprint. What is described (an inventory) has no noise, and there every change counts.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from artifacts.topology import Device, Link, Machine, Topology
from stages.profile.draft import Draft

RATE_TOLERANCE = 0.35
"""A rate is the same as its anchor while neither exceeds the other by more than this part."""
CPU_COMPUTE_TOLERANCE = 0.8
CPU_MEMORY_TOLERANCE = 2.0
"""A CPU shares caches, execution units and the memory bus with everything else on the machine. In repeated profiles of two unchanged
cores, from idle to ten other programs, a share reached between 106 and 172 GFLOP/s and between 6 and 22 GB/s."""
NETWORK_TOLERANCE = 0.5
INSIDE_TOLERANCE = 1.5
"""Sockets inside a machine run on its CPU: idle or busy, the same pair was measured between 2.7 and 7.5 GB/s."""
CPU_BOUND_BYTES_PER_S = 1e9
"""One connection that is faster than this is bounded by the processors at its ends, between machines too, and varies as inside one."""
LATENCY_TOLERANCE = 1.0
LATENCY_FLOOR_S = 0.5e-3
"""Latencies that differ by less are one latency, whatever their ratio."""
EDGE_OUTLIER = 2.0
"""A measured link this many times slower than the median of its class is named in the basis on its own, unless a processor bounds it."""


def raw_basis(draft: Draft) -> dict[str, float]:
    """Rate name → value: per device class, per link class, and on their own the links far off their class."""
    basis: dict[str, float] = {}
    by_class: dict[str, list[Device]] = defaultdict(list)
    for device in draft.devices:
        by_class[device.device_class].append(device)
    for name, devices in by_class.items():
        basis[f"compute:{name}"] = statistics.median(d.achieved_flops_per_s.value for d in devices)
        basis[f"memory:{name}"] = statistics.median(d.memory_bandwidth_bytes_per_s.value for d in devices)
        peaks = [d.peak_flops_per_s.value for d in devices if d.peak_flops_per_s]
        if peaks:
            basis[f"peak:{name}"] = statistics.median(peaks)
        # A CPU share's memory is the host's: copying to it says nothing that its memory rate does not.
        host = [d.host_bandwidth_bytes_per_s.value for d in devices if d.host_bandwidth_bytes_per_s and d.vendor != "cpu"]
        if host:
            basis[f"host:{name}"] = statistics.median(host)
    basis.update(_links(draft))
    return dict(sorted(basis.items()))


def link_class(link: Link, machines: dict[str, Machine], devices: dict[str, str]) -> str:
    """Which links are alike: inside machines with the same devices, in one zone, in one region, between two regions.

    ``devices`` gives for each machine the classes of its devices, as text.
    """
    if link.source == link.target:
        return f"inside {devices.get(link.source, '')}".strip()
    a, b = machines[link.source], machines[link.target]
    if (a.region, a.zone) == (b.region, b.zone):
        return f"within {'/'.join(part for part in (a.region, a.zone) if part) or 'the network'}"
    if a.region == b.region:
        return f"between zones of {a.region or 'the network'}"
    return "between " + " and ".join(sorted((a.region or "no region", b.region or "no region")))


def classes_by_machine(devices: Sequence[Device]) -> dict[str, str]:
    names: dict[str, set[str]] = defaultdict(set)
    for device in devices:
        names[device.machine].add(device.device_class)
    return {machine: "+".join(sorted(classes)) for machine, classes in names.items()}


def _links(draft: Draft) -> dict[str, float]:
    machines = {m.name: m for m in draft.machines}
    devices = classes_by_machine(draft.devices)
    groups: dict[str, list[Link]] = defaultdict(list)
    for link in draft.links:
        if link.probe != "failed":
            groups[link_class(link, machines, devices)].append(link)
    outlier, floor_s = (1.0, 0.0) if draft.cluster.kind == "inventory" else (EDGE_OUTLIER, LATENCY_FLOOR_S)
    basis: dict[str, float] = {}
    for name, links in groups.items():
        bandwidth = statistics.median(k.bandwidth_bytes_per_s for k in links)
        latency = statistics.median(k.latency_s for k in links)
        basis[f"bandwidth:{name}"] = bandwidth
        basis[f"latency:{name}"] = latency
        for link in links:
            edge = f"{link.source} → {link.target}"
            bounded = outlier > 1 and link.bandwidth_bytes_per_s > CPU_BOUND_BYTES_PER_S
            if not bounded and _off(bandwidth, link.bandwidth_bytes_per_s, outlier, 0.0):
                basis[f"bandwidth:{edge}"] = link.bandwidth_bytes_per_s
            if _off(link.latency_s, latency, outlier, floor_s):
                basis[f"latency:{edge}"] = link.latency_s
    return basis


def _off(slow: float, quick: float, factor: float, floor: float) -> bool:
    """Whether ``slow`` exceeds ``quick`` by more than the factor and the floor; a factor of 1 is any difference at all."""
    return slow != quick if factor == 1 else slow > quick * factor + floor


def same_rate(name: str, value: float, anchor: float) -> bool:
    """Whether a measurement is within the tolerance of an anchor of the basis; ``name`` is its key there."""
    kind, _, what = name.partition(":")
    if kind == "latency":
        return abs(value - anchor) <= LATENCY_FLOOR_S or _within(value, anchor, LATENCY_TOLERANCE)
    if kind == "bandwidth":
        bounded = what.startswith("inside ") or min(value, anchor) > CPU_BOUND_BYTES_PER_S
        return _within(value, anchor, INSIDE_TOLERANCE if bounded else NETWORK_TOLERANCE)
    if what.startswith("cpu-"):
        return _within(value, anchor, CPU_MEMORY_TOLERANCE if kind == "memory" else CPU_COMPUTE_TOLERANCE)
    return _within(value, anchor, RATE_TOLERANCE)


def _within(value: float, anchor: float, tolerance: float) -> bool:
    return value <= anchor * (1 + tolerance) and anchor <= value * (1 + tolerance)


def anchored(draft: Draft, earlier: Sequence[Topology]) -> Topology:
    """The draft as a topology whose rates are anchored in ``earlier`` ones (newest first).

    An earlier topology that the draft equals but for noise wins, the newest such first: then the fingerprint is that one's. Otherwise
    each rate takes the anchor of the newest topology that has it within the tolerance, and else stands for itself.
    """
    raw = raw_basis(draft)
    if draft.cluster.kind == "inventory":
        return draft.topology(raw)
    known = [t for t in earlier if (t.cluster.kind, t.cluster.name) == (draft.cluster.kind, draft.cluster.name)]
    for candidate in known:
        if raw.keys() == candidate.basis.keys() and all(same_rate(name, raw[name], candidate.basis[name]) for name in raw):
            topology = draft.topology(candidate.basis)
            if topology.fingerprint == candidate.fingerprint:
                return topology
    basis = {name: next((t.basis[name] for t in known if name in t.basis and same_rate(name, value, t.basis[name])), value)
             for name, value in raw.items()}
    return draft.topology(basis)
