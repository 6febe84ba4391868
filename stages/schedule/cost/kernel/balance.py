"""Load balancing: layers over stages, sequences over replicas. Exact for the measures they minimise."""

from __future__ import annotations

from math import floor, log10

import numpy as np

from stages.schedule.cost.kernel.arrays import Floats, Ints
from stages.schedule.cost.kernel.jit import copy, entry, inner


@entry
def split_layers(layers: int, per_layer: Floats, fixed: Floats, most: Ints, split: Ints) -> bool:
    """Layers of each stage into ``split`` so that max_j (fixed_j + per_layer_j · L_j) is least, Σ L_j = layers, 1 ≤ L_j ≤ most_j.

    Giving each further layer to the stage that ends lowest is exact, because every stage's time grows with its layers. False where no split
    exists.
    """
    stages, room = len(per_layer), 0
    for j in range(stages):
        if most[j] < 1:
            return False
        room += most[j]
        split[j] = 1
    if layers < stages or room < layers:
        return False
    for _ in range(layers - stages):
        best, at = np.inf, -1
        for j in range(stages):
            level = fixed[j] + per_layer[j] * (split[j] + 1)
            if split[j] < most[j] and level < best:
                best, at = level, j
        split[at] += 1
    return True


@entry
def apportion(total: int, costs: Floats, most: int, shares: Ints) -> bool:
    """Shares n_i ≥ 1 with Σ n_i = total and n_i ≤ most so that max_i n_i · cost_i is least. False where no shares exist.

    The proportional shares rounded down are never too many, so only the few left over are dealt one by one.
    """
    parts = len(costs)
    if total < parts or total > parts * most:
        return False
    speed, equal = 0.0, True
    for i in range(parts):
        speed += 1.0 / costs[i]
        equal = equal and costs[i] == costs[0]
    if equal:
        for i in range(parts):
            shares[i] = total // parts + (1 if i < total % parts else 0)
        return True
    left = total
    for i in range(parts):
        shares[i] = int(min(max(1.0, floor(total / costs[i] / speed * (1 - 1e-12))), float(most)))
        left -= shares[i]
    if left < 0:
        shares[:parts] = 1
        left = total - parts
    for _ in range(left):
        best, at = np.inf, -1
        for i in range(parts):
            level = (shares[i] + 1) * costs[i]
            if shares[i] < most and level < best:
                best, at = level, i
        shares[at] += 1
    return True


@inner
def rounded(cost: float) -> float:
    """To four digits: measuring noise below that must not unbalance equals."""
    if cost <= 0.0:
        return cost
    scale = 10.0 ** (3 - floor(log10(cost)))
    return round(cost * scale) / scale


@entry
def deal_micro_batches(sequences: int, costs: Floats, most: int, stages: int, even: bool, sizes: Ints, trial: Ints) -> int:
    """Number of micro-batches (equal on all replicas) of one mini-batch, and each replica's micro-batch size into ``sizes``; 0 where no
    deal exists.

    A replica's share is a whole number of equal micro-batches, so the number divides ``sequences``. Chosen so that the slowest replica,
    (micro-batches + stages − 1) · size_i · cost_i, is least; among equals the larger micro-batch.

    Args:
        sequences: of one mini-batch, over all replicas.
        costs: seconds a sequence on each replica's slowest stage.
        most: largest micro-batch.
        stages: pipeline stages, whose filling every micro-batch count pays for.
        even: all replicas take the same share.
        trial: scratch, as long as ``sizes``.
    """
    parts = len(costs)
    best, chosen = np.inf, 0
    for count in range(max(1, -(-sequences // (parts * most))), sequences // parts + 1):
        if sequences % count:
            continue
        units = sequences // count
        if even:
            if units % parts:
                continue
            trial[:parts] = units // parts
        elif not apportion(units, costs, most, trial):
            continue
        worst = 0.0
        for i in range(parts):
            worst = max(worst, (count + stages - 1) * trial[i] * costs[i])
        if worst < best * (1 - 1e-9):
            best, chosen = worst, count
            copy(trial, sizes, parts)
    return chosen
