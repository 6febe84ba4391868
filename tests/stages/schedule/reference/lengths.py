"""Response lengths as a distribution: its survival S(t), the share of responses longer than t tokens, and integrals over it.

Without quantiles S(t) = (1 − t/max)^k, k = max/mean − 1. With quantiles the distribution is linear between them, from 0 to the maximum.
Integrals are sums over 8 Gauss–Legendre nodes in each of three panels, finer towards the maximum.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from artifacts.job import Lengths

PANELS = (0.0, 0.6, 0.9, 1.0)


@lru_cache
def nodes(maximum: int) -> list[tuple[float, float]]:
    """(tokens, weight in tokens) of each node."""
    found = []
    for low, high in pairwise(PANELS):
        for x, weight in zip(*np.polynomial.legendre.leggauss(8), strict=True):
            found.append((maximum * (low + (high - low) * (float(x) + 1) / 2), maximum * (high - low) * float(weight) / 2))
    return found


def survival(tokens: float, response: Lengths) -> float:
    if not response.quantiles:
        k = max(0.0, response.max / response.mean - 1.0)
        return max(0.0, 1.0 - tokens / response.max) ** k
    points = [(0, 0.0), *((length, share) for share, length in sorted(response.quantiles.items())), (response.max, 1.0)]
    for (short, below), (long, upto) in pairwise(points):
        if short <= tokens < long:
            return 1.0 - below - (upto - below) * (tokens - short) / (long - short)
    return 0.0


def expected_longest(response: Lengths, count: int) -> float:
    """Tokens of the longest of ``count`` responses: ∫ 1 − (1 − S)^count."""
    return sum(weight * (1.0 - (1.0 - survival(t, response)) ** count) for t, weight in nodes(response.max))


def mean_age(response: Lengths) -> float:
    """Tokens a running response has on average while a server is full, E[length²]/(2·E[length]): ∫ t·S / ∫ S, or max/(k + 2)."""
    if not response.quantiles:
        return response.max / (max(0.0, response.max / response.mean - 1.0) + 2.0)
    points = [(t, weight, survival(t, response)) for t, weight in nodes(response.max)]
    return sum(t * weight * s for t, weight, s in points) / sum(weight * s for _, weight, s in points)
