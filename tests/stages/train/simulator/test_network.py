"""From links between machines to resources that flows share."""

from __future__ import annotations

import pytest

from artifacts.errors import InfeasiblePlan
from stages.train.engines.simulator.collectives import ring
from stages.train.engines.simulator.network import Network
from tests.stages.schedule.builders import A100, L4, topology

FLEET = topology([(A100, 2), (A100, 2), (L4, 1), (L4, 1)], regions=["east", "east", "west", "west"], lan=(1e-4, 10e9), wan=(1e-2, 1e9))


def names(network: Network, route: tuple[int, ...]) -> list[str]:
    return [network.names[r] for r in route]


def test_inside_a_machine_nothing_is_shared() -> None:
    flow = Network(FLEET).flow(0, 1, 240e6)
    assert (flow.route, flow.bytes_) == ((), 0.0)
    assert flow.latency_s == pytest.approx(5e-6 + 240e6 / 240e9)


def test_the_way_between_machines_and_between_regions() -> None:
    network = Network(FLEET)
    near, far = network.flow(0, 2, 1e6, steps=3), network.flow(0, 4, 1e6)
    assert names(network, near.route) == ["out of m0", "m0 → m1", "into m1"] and near.latency_s == pytest.approx(3e-4)
    assert names(network, far.route) == ["out of m0", "m0 → m2", "trunk east → west", "into m2"]
    assert [network.capacity[r] for r in far.route] == [10e9, 1e9, 2e9, 10e9]


def test_a_trunk_of_one_stream() -> None:
    network = Network(FLEET, trunk_streams=1)
    assert network.capacity[network.flow(0, 4, 1.0).route[2]] == 1e9


def test_a_missing_link_is_named() -> None:
    network = Network(topology([(A100, 1), (L4, 1)], failed=[(0, 1)]))
    with pytest.raises(InfeasiblePlan, match="from machine m0 to m1, which no usable link joins"):
        network.flow(0, 1, 1.0)


def test_a_ring_moves_what_an_all_reduce_moves() -> None:
    """2(n−1)/n of the bytes over every edge (Patarasuk and Yuan, 2009), and 2(n−1) latencies."""
    exchange = ring(Network(FLEET), [0, 2, 4], 3e6, passes=2)
    assert [f.bytes_ for f in exchange.flows] == pytest.approx([4e6] * 3)
    assert [f.latency_s for f in exchange.flows] == pytest.approx([4e-4, 4e-2, 4e-2])
    assert ring(Network(FLEET), [0, 1], 2e6, passes=1).alone_s == pytest.approx(5e-6 + 1e6 / 240e9)
