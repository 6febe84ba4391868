"""What holds of anything that was played, found again from its log: nothing of the event loop is trusted."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np

from stages.train.engines.simulator.graph import Flow, Graph, Played

CLOSE = 1e-9


def assert_all(graph: Graph, played: Played) -> None:
    assert_dependencies(graph, played)
    assert_exclusive(graph, played)
    assert_work(graph, played)
    assert_links(graph, played)


def assert_dependencies(graph: Graph, played: Played) -> None:
    """Everything was played, and nothing before what it waits for."""
    assert (played.end >= played.start).all() and (played.start >= 0).all()
    for i, before in enumerate(graph.after):
        for b in before:
            assert played.start[i] >= played.end[b] - CLOSE, f"{graph.labels[i]} began before {graph.labels[b]} ended"


def assert_exclusive(graph: Graph, played: Played) -> None:
    """No device does two things at once."""
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for i, devices in enumerate(graph.devices):
        if played.end[i] > played.start[i]:
            for d in devices:
                spans[d].append((float(played.start[i]), float(played.end[i])))
    assert spans
    for mine in spans.values():
        for (_, end), (start, _) in pairwise(sorted(mine)):
            assert start >= end - CLOSE * max(1.0, end)


def assert_work(graph: Graph, played: Played) -> None:
    """Each activity takes at least its work and its latencies, exactly that where it moves nothing."""
    for i, bundle in enumerate(graph.flows):
        least = graph.rounds[i] * (graph.busy_s[i] + max((f.latency_s for f in bundle), default=0.0))
        took = played.end[i] - played.start[i]
        slack = CLOSE * max(1.0, played.end[i])
        assert took >= least - slack
        if not any(f.bytes_ for f in bundle):
            assert abs(took - least) <= slack * graph.rounds[i]


def assert_links(graph: Graph, played: Played) -> None:
    """From the log of rates: every flow moves all its bytes, no resource carries more than its bandwidth, none idles that somebody waits for."""
    flows: list[tuple[int, Flow]] = [(i, f) for i, bundle in enumerate(graph.flows) for f in bundle]
    rate, since, moved = np.zeros(len(flows)), np.zeros(len(flows)), np.zeros(len(flows))
    load = np.zeros(len(graph.capacity))
    for k, (time, flow, new) in enumerate(played.rates):
        moved[flow] += rate[flow] * (time - since[flow])
        since[flow] = time
        for r in flows[flow][1].route:
            load[r] += new - rate[flow]
        rate[flow] = new
        if k + 1 == len(played.rates) or played.rates[k + 1][0] > time:
            assert (load <= graph.capacity * (1 + CLOSE)).all(), "a link carries more than its bandwidth"
            for f in np.flatnonzero(rate > 0):
                full = [load[r] >= graph.capacity[r] * (1 - 1e-6) for r in flows[f][1].route]
                assert any(full), "a flow is slower than every link it passes over allows"
    want = np.array([graph.rounds[i] * f.bytes_ for i, f in flows])
    assert np.allclose(moved, want, rtol=1e-6, atol=1e-3), "bytes were lost or made"
