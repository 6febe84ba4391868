"""The event loop on small examples whose outcome is known, and its invariants on arbitrary ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.train.engines.simulator.graph import Flow, Graph, Label
from tests.stages.train.simulator.invariants import assert_all

LABEL = Label("task", "something", 0)


def graph(*capacity: float) -> Graph:
    return Graph(np.array(capacity))


def test_work_and_collective_take_turns_in_every_round() -> None:
    g = graph(10.0)
    g.add(LABEL, (0,), busy_s=2.0, rounds=3, flows=[Flow(latency_s=0.5, bytes_=10.0, route=(0,))])
    assert g.play().end.tolist() == pytest.approx([3 * (2.0 + 0.5 + 1.0)])


def test_two_flows_halve_a_link_until_one_ends() -> None:
    """Until t=2 both have half of 10 B/s; then the longer one has all of it: 10 of its 30 bytes moved, 20 to go at 10 B/s."""
    g = graph(10.0)
    g.add(LABEL, (0,), flows=[Flow(0.0, 10.0, (0,))])
    g.add(LABEL, (1,), flows=[Flow(0.0, 30.0, (0,))])
    assert g.play().end.tolist() == pytest.approx([2.0, 4.0])


def test_bandwidth_is_shared_max_min_fairly() -> None:
    """Bertsekas and Gallager's example: flows over both links and over each alone. The narrow link gives 1 each, the wide one's rest is 9."""
    g = graph(2.0, 10.0)
    g.add(LABEL, (0,), flows=[Flow(0.0, 100.0, (0, 1))])
    g.add(LABEL, (1,), flows=[Flow(0.0, 100.0, (0,))])
    g.add(LABEL, (2,), flows=[Flow(0.0, 90.0, (1,))])
    played = g.play(record=True)
    assert {f: r for t, f, r in played.rates if t == 0.0} == pytest.approx({0: 1.0, 1: 1.0, 2: 9.0})
    assert played.end.tolist() == pytest.approx([100.0, 100.0, 10.0])


def test_waiting_for_latency_takes_no_bandwidth() -> None:
    g = graph(10.0)
    g.add(LABEL, (0,), flows=[Flow(5.0, 10.0, (0,))])
    g.add(LABEL, (1,), flows=[Flow(0.0, 50.0, (0,))])
    assert g.play().end.tolist() == pytest.approx([6.0, 5.0])


def test_a_device_does_one_thing_after_the_other_in_the_order_added() -> None:
    g = graph()
    g.add(LABEL, (0, 1), busy_s=1.0)
    g.add(LABEL, (1,), busy_s=2.0)
    g.add(LABEL, (0,), busy_s=4.0)
    g.add(LABEL, (0, 1), busy_s=1.0)
    assert g.play().start.tolist() == [0.0, 1.0, 1.0, 5.0]


def test_a_million_events() -> None:
    """200 rings of four devices, 400 rounds each: seconds, as long as an event touches only the flows it shares a link with."""
    g = graph(*([1e9] * 800))
    for ring in range(200):
        flows = [Flow(1e-6, 1e3, (4 * ring + e,)) for e in range(4)]
        g.add(LABEL, tuple(range(4 * ring, 4 * ring + 4)), busy_s=1e-3 * (1 + ring / 200), rounds=400, flows=flows)
    played = g.play()
    assert played.events > 700_000, "a round is one event of work, and two a flow"
    assert played.end == pytest.approx([400 * (1e-3 * (1 + ring / 200) + 1e-6 + 1e3 / 1e9) for ring in range(200)])


RESOURCES = 5
flows = st.builds(Flow, latency_s=st.floats(0, 2), bytes_=st.one_of(st.just(0.0), st.floats(0.5, 50)),
                  route=st.lists(st.integers(0, RESOURCES - 1), min_size=1, max_size=4, unique=True).map(tuple))
activities = st.tuples(
    st.lists(st.integers(0, 5), max_size=3, unique=True).map(tuple), st.floats(0, 3), st.integers(1, 3), st.lists(flows, max_size=3),
    st.lists(st.integers(0, 30), max_size=2))


@settings(max_examples=150, deadline=None)
@given(st.lists(activities, min_size=1, max_size=25), st.lists(st.floats(0.5, 20), min_size=RESOURCES, max_size=RESOURCES))
def test_invariants_of_anything(wanted: list[tuple[tuple[int, ...], float, int, list[Flow], list[int]]], capacity: list[float]) -> None:
    g = graph(*capacity)
    g.add(LABEL, (0,), busy_s=1.0)
    for devices, busy, rounds, bundle, after in wanted:
        g.add(LABEL, devices, busy_s=busy, rounds=rounds, flows=bundle, after=[a % len(g.labels) for a in after])
    played = g.play(record=True)
    assert_all(g, played)
    again = g.play(record=True)
    assert played.start.tolist() == again.start.tolist() and played.rates == again.rates
