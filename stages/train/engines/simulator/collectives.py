"""Collectives as flows: a ring's equal steps over an edge are one flow with all their bytes and all their latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stages.train.engines.simulator.graph import Flow
from stages.train.engines.simulator.network import Network


@dataclass(frozen=True)
class Exchange:
    """Flows that must all end, and seconds that pass before them on links nobody else uses."""

    alone_s: float = 0.0
    flows: tuple[Flow, ...] = ()

    @staticmethod
    def of(flows: Sequence[Flow]) -> Exchange:
        """All at once. Where every flow is inside machines, the slowest one's time is all there is."""
        if all(not f.route for f in flows):
            return Exchange(alone_s=max((f.latency_s for f in flows), default=0.0))
        return Exchange(flows=tuple(flows))


def ring(network: Network, ranks: Sequence[int], bytes_: float, *, passes: float) -> Exchange:
    """``passes`` times round a ring: 1 is a reduce-scatter or an all-gather of ``bytes_``, 2 an all-reduce, 4 two of them in a row.

    A pass has n − 1 steps of bytes/n over every edge.
    """
    n = len(ranks)
    if n == 1:
        return Exchange()
    steps = passes * (n - 1)
    return Exchange.of([network.flow(a, b, steps * bytes_ / n, steps=steps) for a, b in zip(ranks, [*ranks[1:], ranks[0]], strict=True)])


def hops(network: Network, pairs: Sequence[tuple[int, int, float]], *, messages: int = 1) -> Exchange:
    """Point to point, all at once: (from, to, bytes), each in so many messages that wait for each other."""
    return Exchange.of([network.flow(a, b, bytes_, steps=messages) for a, b, bytes_ in pairs])


def by_place(network: Network, ranks: Sequence[int]) -> list[int]:
    """Ring order of a collective whose ranks may sit anywhere: machine by machine."""
    return sorted(ranks, key=lambda d: (network.machine[d], d))
