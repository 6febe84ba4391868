"""The fleet as plain lists: where each device sits, how fast it is, what lies between two machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, isnan, log

from stages.schedule.cost.compute import Curve
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem

Crossings = Counter[tuple[int, int]]
"""Transfers that go on at one time, by (sending machine, receiving machine)."""

NOT_MEASURED_BYTES_PER_S = 1e-9
"""Rate between host and device where none is known: whatever needs it takes for ever."""


@dataclass(frozen=True)
class Fleet:
    """By device index: machine, class, bytes/s of memory, plannable bytes, capacity, bytes/s to the host, whether its memory is the host's,
    times as long as stated that the host's work takes (a CPU device is its own host).

    By machine index: bytes of host memory; by pair: one-way latency (s) and s/byte, ``[m][m]`` between devices inside machine m.
    ``sends`` and ``receives``: s/byte of a machine's port, which is as fast as its fastest link out or in.
    """

    machine: list[int]
    device_class: list[int]
    curves: tuple[Curve, ...]
    hbm: list[float]
    slow: list[float]
    usable: list[float]
    capacity: list[float]
    host_rate: list[float]
    on_host: list[bool]
    host_memory: list[float]
    latency: list[list[float]]
    inverse: list[list[float]]
    sends: list[float]
    receives: list[float]

    @classmethod
    def of(cls, problem: Problem) -> Fleet:
        fleet = problem.fleet
        latency, inverse = fleet.machine_latency_s.tolist(), fleet.machine_inverse_bandwidth.tolist()
        machines = range(len(latency))
        joined = [(a, b) for a in machines for b in machines if a != b and latency[a][b] < UNUSABLE_S]
        return cls(
            machine=fleet.machine.tolist(),
            device_class=fleet.device_class.tolist(),
            curves=fleet.curves,
            hbm=fleet.hbm_bytes_per_s.tolist(),
            slow=[problem.engine.host_flops_per_s / fleet.curves[c].best if problem.engine.host_flops_per_s else 1.0
                  for c in fleet.device_class.tolist()],
            usable=[m * (1.0 - problem.engine.memory.reserve) for m in fleet.memory_bytes.tolist()],
            capacity=fleet.memory_bytes.tolist(),
            host_rate=[NOT_MEASURED_BYTES_PER_S if isnan(rate) else rate for rate in fleet.host_bytes_per_s.tolist()],
            on_host=fleet.memory_is_host.tolist(),
            host_memory=fleet.host_memory_bytes.tolist(),
            latency=latency,
            inverse=inverse,
            sends=[min((inverse[a][b] for a, b in joined if a == m), default=0.0) for m in machines],
            receives=[min((inverse[a][b] for a, b in joined if b == m), default=0.0) for m in machines],
        )

    def slowest_rate(self, devices: Iterable[int], *, tokens: float, hidden: int, tp: int) -> float:
        """FLOP/s of the slowest device in an h × h/tp matrix, which costs what a square one of side h/√tp does."""
        classes = {self.device_class[d] for d in devices}
        return min(rate_on(self.curves[c], tokens=tokens, width=hidden / tp**0.5) for c in classes)

    def slowest_memory(self, devices: Iterable[int]) -> float:
        return min(self.hbm[d] for d in devices)

    def slowest_host(self, devices: Iterable[int]) -> float:
        return max(self.slow[d] for d in devices)

    def pair(self, source: int, target: int) -> tuple[int, int]:
        return self.machine[source], self.machine[target]

    def crossings(self, transfers: Iterable[tuple[int, int]]) -> Crossings:
        """Transfers between devices, counted where they leave a machine: only there do they share a link."""
        pairs = (self.pair(s, t) for s, t in transfers)
        return Counter(p for p in pairs if p[0] != p[1])

    def inverse_shared(self, pair: tuple[int, int], crossings: Crossings) -> float:
        """Seconds a byte between two machines while others cross with it."""
        return self.inverse[pair[0]][pair[1]] * max(1, crossings[pair])


def rate_on(curve: Curve, *, tokens: float, width: float) -> float:
    """FLOP/s at a size: linear in the logarithms between measured points, the nearest point's outside them."""
    if not curve.widths:
        return curve.flat
    by_width = [_between(log(max(tokens, 1.0)), ts, rates) for ts, rates in zip(curve.tokens, curve.rates, strict=True)]
    return exp(_between(log(max(width, 1.0)), curve.widths, [exp(r) for r in by_width]))


def _between(x: float, sizes: Sequence[int], values: Sequence[float]) -> float:
    """Logarithm of a value at the logarithm x of a size, between the sizes given (ascending)."""
    if x <= log(sizes[0]):
        return log(values[0])
    for k in range(1, len(sizes)):
        low, high = log(sizes[k - 1]), log(sizes[k])
        if x < high:
            return log(values[k - 1]) + (x - low) / (high - low) * (log(values[k]) - log(values[k - 1]))
    return log(values[-1])
