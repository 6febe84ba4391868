"""Load balancing: layers over stages, sequences over replicas. Exact for the measures they minimise."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def split_layers(
    layers: int, *, per_layer: Sequence[float], fixed: Sequence[float], most: Sequence[int] | None = None
) -> tuple[int, ...] | None:
    """Layers of each stage so that max_j (fixed_j + per_layer_j · L_j) is least, Σ L_j = layers, 1 ≤ L_j ≤ most_j.

    Giving each further layer to the stage that ends lowest is exact, because every stage's time grows with its layers.
    None where no split exists.
    """
    stages = len(per_layer)
    bound = list(most) if most is not None else [layers] * stages
    if layers < stages or min(bound) < 1 or sum(bound) < layers:
        return None
    split = [1] * stages
    heap = [(fixed[j] + 2 * per_layer[j], j) for j in range(stages) if bound[j] > 1]
    heapq.heapify(heap)
    for _ in range(layers - stages):
        level, j = heapq.heappop(heap)
        split[j] += 1
        if split[j] < bound[j]:
            heapq.heappush(heap, (level + per_layer[j], j))
    return tuple(split)


@lru_cache(maxsize=65536)
def apportion(total: int, costs: tuple[float, ...], most: int | None = None) -> tuple[int, ...] | None:
    """Shares n_i ≥ 1 with Σ n_i = total and n_i ≤ most so that max_i n_i · cost_i is least. None where no shares exist.

    The proportional shares rounded down are never too many, so only the few left over are dealt one by one.
    """
    parts = len(costs)
    if total < parts or (most is not None and total > parts * most):
        return None
    cap = most if most is not None else total
    speed = np.array([1.0 / c for c in costs])
    start = np.floor(total * speed / speed.sum() * (1 - 1e-12))
    shares = [int(min(max(1.0, s), cap)) for s in start]
    left = total - sum(shares)
    if left < 0:
        shares = [1] * parts
        left = total - parts
    heap = [((shares[i] + 1) * costs[i], i) for i in range(parts) if shares[i] < cap]
    heapq.heapify(heap)
    for _ in range(left):
        level, i = heapq.heappop(heap)
        shares[i] += 1
        if shares[i] < cap:
            heapq.heappush(heap, (level + costs[i], i))
    return tuple(shares)


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(small + [n // d for d in reversed(small) if d * d != n])


@lru_cache(maxsize=65536)
def deal_micro_batches(
    sequences: int, costs: tuple[float, ...], *, most: int, stages: int, even: bool = False
) -> tuple[int, tuple[int, ...]] | None:
    """Number of micro-batches (equal on all replicas) and each replica's micro-batch size, for one mini-batch.

    A replica's share is a whole number of equal micro-batches, so the number divides ``sequences``. Chosen so that the slowest replica,
    (micro-batches + stages − 1) · size_i · cost_i, is least; among equals the larger micro-batch. None where no deal exists.

    Args:
        sequences: of one mini-batch, over all replicas.
        costs: seconds a sequence on each replica's slowest stage.
        most: largest micro-batch.
        stages: pipeline stages, whose filling every micro-batch count pays for.
        even: all replicas take the same share.
    """
    best: tuple[float, int, tuple[int, ...]] | None = None
    parts = len(costs)
    for count in divisors(sequences):
        units = sequences // count
        if units > parts * most or units < parts or (even and units % parts):
            continue
        sizes = (units // parts,) * parts if even else apportion(units, costs, most)
        if sizes is None:
            continue
        worst = (count + stages - 1) * max(s * c for s, c in zip(sizes, costs, strict=True))
        if best is None or worst < best[0] * (1 - 1e-9):
            best = (worst, count, sizes)
    return None if best is None else (best[1], best[2])
