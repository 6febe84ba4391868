"""How fast devices compute and read, as the topology says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from artifacts.topology import Device, Topology


@dataclass(frozen=True, eq=False)
class Curve:
    """Achieved FLOP/s by size, as measured: width → (log tokens, log rates), or one rate for every size."""

    flat: float
    points: dict[int, tuple[list[float], list[float]]]

    @classmethod
    def of(cls, device: Device) -> Curve:
        found: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for p in device.compute_curve:
            found[p.width].append((p.tokens, p.flops_per_s))
        points = {w: tuple(np.log(np.array(sorted(ps))).T.tolist()) for w, ps in sorted(found.items())}
        return cls(flat=device.achieved_flops_per_s.value, points=points)  # type: ignore[arg-type]

    @property
    def best(self) -> float:
        return float(np.exp(max(max(r) for _, r in self.points.values()))) if self.points else self.flat

    def at(self, tokens: float, width: float) -> float:
        """Interpolated in the logarithms; the nearest measured size outside what was measured."""
        if not self.points:
            return self.flat
        along = [float(np.interp(np.log(max(tokens, 1.0)), t, r)) for t, r in self.points.values()]
        return float(np.exp(np.interp(np.log(width), np.log(list(self.points)), along)))


@dataclass(frozen=True, eq=False)
class Devices:
    """Devices by their index in the topology."""

    topology: Topology
    index: dict[str, int]
    _curves: list[Curve]
    _known: dict[tuple[tuple[int, ...], float, float], float] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology) -> Devices:
        return cls(topology, {d.id: i for i, d in enumerate(topology.devices)}, [Curve.of(d) for d in topology.devices])

    def flops_per_s(self, shards: tuple[int, ...], *, tokens: float, hidden: int) -> float:
        """Rate of the slowest of a layer's shards. A shard's h × h/tp matrix costs what a square one of width h/√tp does."""
        key = (shards, float(f"{tokens:.3g}"), hidden / len(shards) ** 0.5)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = min(self._curves[d].at(key[1], key[2]) for d in shards)
        return found

    def best_flops_per_s(self, shards: Iterable[int]) -> float:
        """At the best point of the slowest's curve."""
        return min(self._curves[d].best for d in shards)

    def host_slowness(self, shards: Iterable[int], *, stated_flops_per_s: float) -> float:
        """How much longer than stated the slowest's host takes: a CPU device is its own host. Stated 0: hosts apart, as stated."""
        return max(stated_flops_per_s / self._curves[d].best for d in shards) if stated_flops_per_s else 1.0

    def read_bytes_per_s(self, shards: Iterable[int]) -> float:
        """Memory rate of the slowest."""
        return min(self.topology.devices[d].memory_bandwidth_bytes_per_s.value for d in shards)

    def host_bytes_per_s(self, device: int) -> float | None:
        """One direction; None: not known."""
        rate = self.topology.devices[device].host_bandwidth_bytes_per_s
        return rate.value if rate else None
