"""Response lengths as a distribution with a mean and a maximum: how long the last ones take, and how long contexts are meanwhile.

Survival P(length > u·max) = (1 − u)^k with k = max/mean − 1: one parameter, the right mean, nothing beyond the maximum; k = 0 is "all at
the maximum". An assumption (quantiles of the real lengths would replace it), named so in the prediction's provenance.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, lgamma


def shape(*, mean: float, maximum: float) -> float:
    """The exponent k ≥ 0."""
    return max(0.0, maximum / mean - 1.0)


def survival(fraction: float, *, k: float) -> float:
    """Share of responses longer than ``fraction`` of the maximum."""
    if k == 0.0:
        return 1.0 if fraction < 1.0 else 0.0
    return float(max(0.0, 1.0 - fraction) ** k)


@lru_cache(maxsize=65536)
def expected_longest(*, mean: float, maximum: float, count: int) -> float:
    """Expected length of the longest of ``count`` responses: max · (1 − B(1/k, count+1)/k)."""
    k = shape(mean=mean, maximum=maximum)
    if k < 1e-9:
        return maximum
    a = 1.0 / k
    beta = exp(lgamma(a) + lgamma(count + 1.0) - lgamma(a + count + 1.0))
    return maximum * (1.0 - beta * a)


def mean_age(*, mean: float, maximum: float) -> float:
    """Tokens a running response has on average while a server is full: E[length²]/(2·E[length]) = max/(k + 2)."""
    return maximum / (shape(mean=mean, maximum=maximum) + 2.0)
