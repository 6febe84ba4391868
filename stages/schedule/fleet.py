"""The topology as flat arrays: devices in order of place, links between every two of them, rates by device class."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.topology import Device, Provenance, Topology
from stages.schedule.cost.compute import Curve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNUSABLE_S = 1e12
"""Latency of a pair without a usable link: finite so that arithmetic stays exact, longer than any plan could take."""


@dataclass(frozen=True, eq=False)
class Fleet:
    """Devices of a topology, sorted by region, zone, machine, so that neighbours in the order are near each other.

    Arrays over devices have shape ``[D]``, over pairs ``[D, D]``, over machine pairs ``[M, M]``, over classes ``[C]``. A pair without
    a usable link has latency ``UNUSABLE_S``: unknown is never a small number, so nothing is planned over it.
    """

    devices: tuple[Device, ...]
    machine: Ints
    region: Ints
    device_class: Ints
    classes: tuple[str, ...]
    curves: tuple[Curve, ...]
    hbm_bytes_per_s: Floats
    memory_bytes: Floats
    host_bytes_per_s: Floats
    latency_s: Floats
    inverse_bandwidth: Floats
    machine_latency_s: Floats
    machine_inverse_bandwidth: Floats
    machines: tuple[str, ...]
    regions: tuple[str, ...]
    host_memory_bytes: Floats
    memory_is_host: NDArray[np.bool_]
    rate_provenance: tuple[Provenance, ...]
    link_provenance: Provenance

    @property
    def size(self) -> int:
        return len(self.devices)

    def index(self, device_id: str) -> int:
        return next(i for i, d in enumerate(self.devices) if d.id == device_id)


def build_fleet(topology: Topology) -> Fleet:
    """Arrays of a topology. Rates of a class are means over its devices, which are interchangeable by definition."""
    places = {m.name: (m.region, m.zone, m.name) for m in topology.machines}
    devices = tuple(sorted(topology.devices, key=lambda d: (places[d.machine], d.id)))
    machines = tuple(sorted(places, key=lambda name: places[name]))
    machine_index = {name: i for i, name in enumerate(machines)}
    regions = tuple(sorted({m.region for m in topology.machines}))
    region_of = {m.name: regions.index(m.region) for m in topology.machines}
    classes = tuple(sorted({d.device_class for d in devices}))
    members = {c: [d for d in devices if d.device_class == c] for c in classes}
    hbm = {c: float(np.mean([d.memory_bandwidth_bytes_per_s.value for d in members[c]])) for c in classes}

    count = len(machines)
    latency = np.full((count, count), UNUSABLE_S)
    inverse = np.zeros((count, count))
    for link in topology.links:
        if link.probe != "failed":
            s, t = machine_index[link.source], machine_index[link.target]
            latency[s, t], inverse[s, t] = link.latency_s, 1.0 / link.bandwidth_bytes_per_s
    machine = np.array([machine_index[d.machine] for d in devices], dtype=np.int64)
    device_latency, device_inverse = latency[np.ix_(machine, machine)], inverse[np.ix_(machine, machine)]
    np.fill_diagonal(device_latency, 0.0)
    np.fill_diagonal(device_inverse, 0.0)
    return Fleet(
        devices=devices,
        machine=machine,
        region=np.array([region_of[d.machine] for d in devices], dtype=np.int64),
        device_class=np.array([classes.index(d.device_class) for d in devices], dtype=np.int64),
        classes=classes,
        curves=tuple(_curve(members[c]) for c in classes),
        hbm_bytes_per_s=np.array([hbm[d.device_class] for d in devices]),
        memory_bytes=np.array([float(d.memory_bytes) for d in devices]),
        host_bytes_per_s=np.array([d.host_bandwidth_bytes_per_s.value if d.host_bandwidth_bytes_per_s else np.nan for d in devices]),
        latency_s=device_latency,
        inverse_bandwidth=device_inverse,
        machine_latency_s=latency,
        machine_inverse_bandwidth=inverse,
        machines=machines,
        regions=regions,
        host_memory_bytes=np.array([float(topology.machine(name).host_memory_bytes) for name in machines]),
        memory_is_host=np.array([d.vendor == "cpu" for d in devices]),
        rate_provenance=tuple(_worst(d.achieved_flops_per_s.provenance for d in members[c]) for c in classes),
        link_provenance=_worst(k.provenance for k in topology.links),
    )


def _curve(devices: list[Device]) -> Curve:
    points: dict[tuple[int, int], list[float]] = defaultdict(list)
    for device in devices:
        for point in device.compute_curve:
            points[point.width, point.tokens].append(point.flops_per_s)
    flat = float(np.mean([d.achieved_flops_per_s.value for d in devices]))
    return Curve.of({key: float(np.mean(rates)) for key, rates in points.items()}, flat=flat)


_TRUST: dict[Provenance, int] = {"calibrated": 0, "measured": 1, "spec": 2, "assumed": 3}


def _worst(provenances: object) -> Provenance:
    return max(provenances, key=lambda p: _TRUST[p], default="assumed")  # type: ignore[call-overload,no-any-return]
