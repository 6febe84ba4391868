"""How long transfers take: rings in one or two levels, and hops from shard to shard."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tests.stages.schedule.reference.fleet import Crossings, Fleet

NOBODY = Crossings()


def ring_edges(devices: Sequence[int]) -> list[tuple[int, int]]:
    """(sender, receiver) of each step of a ring; it runs in the fleet's order, in which a machine's devices lie side by side."""
    order = sorted(devices)
    return list(zip(order, order[1:] + order[:1], strict=True)) if len(order) > 1 else []


def ring_pass(fleet: Fleet, devices: Sequence[int], bytes_: float, crossings: Crossings = NOBODY) -> float:
    """Reduce-scatter or all-gather of ``bytes_``: (n−1)·(α + bytes/(n·β)) at the slowest α and β of the ring.

    Where each of g machines holds m > 1 of the ring's devices, it may go in two levels: (m−1)·(α + bytes/(m·β)) inside the machines,
    (g−1)·(α + bytes/(g·β)) across them. The cheaper counts.
    """
    n = len(devices)
    if n == 1:
        return 0.0
    pairs = [fleet.pair(s, t) for s, t in ring_edges(devices)]
    flat = _steps(fleet, pairs, n, bytes_, crossings)
    sizes = [len(list(here)) for _, here in groupby(sorted(fleet.machine[d] for d in devices))]
    if len(sizes) == 1 or len(set(sizes)) > 1 or sizes[0] == 1:
        return flat
    inside = _steps(fleet, [p for p in pairs if p[0] == p[1]], sizes[0], bytes_, crossings)
    return min(flat, inside + _steps(fleet, [p for p in pairs if p[0] != p[1]], len(sizes), bytes_, crossings))


def all_reduce(fleet: Fleet, devices: Sequence[int], bytes_: float, crossings: Crossings = NOBODY) -> float:
    """A reduce-scatter, then an all-gather."""
    return 2.0 * ring_pass(fleet, devices, bytes_, crossings)


def hop(fleet: Fleet, senders: Sequence[int], receivers: Sequence[int], bytes_: float, crossings: Crossings = NOBODY, messages: int = 1) -> float:
    """``bytes_`` from each shard of a stage to its fellow on the next: the slowest shard's messages·α + bytes/β."""
    shards = zip(senders, receivers, strict=True)
    pairs = [fleet.pair(s, t) for s, t in shards if s != t]
    return max((messages * fleet.latency[a][b] + bytes_ * fleet.inverse_shared((a, b), crossings) for a, b in pairs), default=0.0)


def _steps(fleet: Fleet, pairs: Sequence[tuple[int, int]], n: int, bytes_: float, crossings: Crossings) -> float:
    alpha = max(fleet.latency[a][b] for a, b in pairs)
    inverse = max(fleet.inverse_shared(p, crossings) for p in pairs)
    return (n - 1) * (alpha + bytes_ / n * inverse)
