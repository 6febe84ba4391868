"""Response lengths as a distribution: how many are longer than a length, how long contexts are meanwhile.

With a mean and a maximum only, survival P(length > u·max) = (1 − u)^k with k = max/mean − 1: one parameter, the right mean, nothing beyond
the
maximum; k = 0 is "all at the maximum". An assumption, named so in the prediction's provenance. Quantiles, where the job has them, replace
it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from artifacts.job import Lengths

Floats = NDArray[np.float64]

PANELS = (0.0, 0.6, 0.9, 1.0)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def node_lengths(maximum: float) -> tuple[Floats, Floats]:
    """Gauss–Legendre nodes and weights over 0 … maximum tokens, finer towards the end, where the last responses are."""
    low, high = np.array(PANELS[:-1])[:, None], np.array(PANELS[1:])[:, None]
    nodes = (low + (high - low) * (_NODES + 1) / 2).ravel()
    weights = ((high - low) * _WEIGHTS / 2).ravel()
    return nodes * maximum, weights * maximum


def shape(*, mean: float, maximum: float) -> float:
    """The exponent k ≥ 0."""
    return max(0.0, maximum / mean - 1.0)


def survival_at(tokens: Floats, response: Lengths) -> Floats:
    """Share of responses longer than each of ``tokens``."""
    if response.quantiles:
        ends = sorted(response.quantiles.items())
        lengths, below = [0.0, *(float(v) for _, v in ends), float(response.max)], [0.0, *(q for q, _ in ends), 1.0]
        return np.clip(1.0 - np.interp(tokens, lengths, below), 0.0, 1.0)
    k = shape(mean=response.mean, maximum=float(response.max))
    return np.clip(1.0 - tokens / response.max, 0.0, 1.0) ** k if k else (tokens < response.max).astype(np.float64)


def mean_age(response: Lengths) -> float:
    """Tokens a running response has on average while a server is full: E[length²]/(2·E[length]), which is max/(k + 2) for the assumed
    shape.
    """
    if not response.quantiles:
        return response.max / (shape(mean=response.mean, maximum=float(response.max)) + 2.0)
    tokens, weights = node_lengths(response.max)
    survival = survival_at(tokens, response)
    return float((weights * tokens * survival).sum() / (weights * survival).sum())
