"""How long transfers take: point to point, ring collectives, and collectives in two levels."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def ring_pass_s(*, size: int, bytes_: float, latency_s: float, inverse_bandwidth: float) -> float:
    """Reduce-scatter or all-gather of ``bytes_`` over a ring of ``size``: (n−1)·(α + bytes/(n·β))."""
    if size == 1:
        return 0.0
    return (size - 1) * (latency_s + bytes_ * inverse_bandwidth / size)


@cache
def ring_successors(size: int) -> tuple[int, ...]:
    """Position of each rank's successor in a ring."""
    return (*range(1, size), 0)


def ring_edges(ranks: Ints, *, latency_s: Floats, inverse_bandwidth: Floats, bytes_: Floats) -> Floats:
    """Slowest step of the ring along the last axis: max over its edges of α + bytes/(n·β).

    ``ranks`` is ``[..., n]`` device indices, ``bytes_`` broadcasts to ``[...]``; the result is ``[...]`` seconds, 0 for n = 1.
    """
    size = ranks.shape[-1]
    if size == 1:
        return np.zeros(ranks.shape[:-1])
    following = ranks[..., list(ring_successors(size))]
    step = latency_s[ranks, following] + inverse_bandwidth[ranks, following] * (np.asarray(bytes_)[..., None] / size)
    return step.max(axis=-1)  # type: ignore[no-any-return]


def all_reduce_s(ranks: Ints, *, latency_s: Floats, inverse_bandwidth: Floats, bytes_: Floats) -> Floats:
    """Ring all-reduce along the last axis: 2(n−1)·slowest step."""
    return 2.0 * (ranks.shape[-1] - 1) * ring_edges(ranks, latency_s=latency_s, inverse_bandwidth=inverse_bandwidth, bytes_=bytes_)


def gradient_sync_s(
    ring: tuple[int, ...], *, machine: Ints, latency_s: Floats, inverse_bandwidth: Floats, reduce_bytes: float, gather_bytes: float
) -> float:
    """Reduce-scatter of gradients and all-gather of parameters over one ring of replicas; the cheaper of flat and two-level.

    Two-level: inside each machine first, then each local rank's share across the machines (which share the machine's link), then back.
    """
    if len(ring) == 1:
        return 0.0
    order = sorted(ring, key=lambda d: (int(machine[d]), d))
    flat = _passes(order, latency_s, inverse_bandwidth, reduce_bytes, gather_bytes)
    by_machine: dict[int, list[int]] = {}
    for device in order:
        by_machine.setdefault(int(machine[device]), []).append(device)
    sizes = {len(members) for members in by_machine.values()}
    if len(by_machine) == 1 or sizes == {1} or len(sizes) > 1:
        return flat
    inside = max(_passes(members, latency_s, inverse_bandwidth, reduce_bytes, gather_bytes) for members in by_machine.values())
    leaders = [members[0] for members in by_machine.values()]
    return min(flat, inside + _passes(leaders, latency_s, inverse_bandwidth, reduce_bytes, gather_bytes))


def _passes(order: list[int], latency_s: Floats, inverse_bandwidth: Floats, reduce_bytes: float, gather_bytes: float) -> float:
    size = len(order)
    if size == 1:
        return 0.0
    edges = [(latency_s[a, b], inverse_bandwidth[a, b]) for a, b in zip(order, order[1:] + order[:1], strict=True)]
    slowest = [max(alpha + inverse * bytes_ / size for alpha, inverse in edges) for bytes_ in (reduce_bytes, gather_bytes)]
    return float((size - 1) * sum(slowest))


def hop_s(senders: Ints, receivers: Ints, *, latency_s: Floats, inverse_bandwidth: Floats, bytes_: Floats) -> Floats:
    """Point to point between two stages, shard by shard: the slowest of α + bytes/β along the last axis."""
    return (latency_s[senders, receivers] + inverse_bandwidth[senders, receivers] * np.asarray(bytes_)[..., None]).max(axis=-1)  # type: ignore[no-any-return]
