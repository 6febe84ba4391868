"""Collectives and transfers, worked out by hand from α and β."""

from __future__ import annotations

import numpy as np
import pytest

from stages.schedule.cost.network import all_reduce_s, gradient_sync_s, hop_s, ring_pass_s


def links(machine: list[int], *, inside: tuple[float, float], across: tuple[float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(machine, latency, 1/bandwidth) of devices on machines."""
    m = np.array(machine)
    same = m[:, None] == m[None, :]
    return m, np.where(same, inside[0], across[0]), np.where(same, 1 / inside[1], 1 / across[1])


def test_a_ring_pass_moves_every_part_once() -> None:
    assert ring_pass_s(size=1, bytes_=1e9, latency_s=1, inverse_bandwidth=1) == 0
    assert ring_pass_s(size=4, bytes_=8e9, latency_s=0.5, inverse_bandwidth=1e-9) == pytest.approx(3 * (0.5 + 2.0))


def test_all_reduce_is_two_passes_at_the_slowest_edge() -> None:
    """Ring 0,1 on one machine and 2,3 on another: the edges 1→2 and 3→0 cross. 2·3·(1e-3 + 4e6/(4·1e9))."""
    _, latency, inverse = links([0, 0, 1, 1], inside=(1e-6, 1e11), across=(1e-3, 1e9))
    seconds = all_reduce_s(np.array([[0, 1, 2, 3]]), latency_s=latency, inverse_bandwidth=inverse, bytes_=np.array([4e6]))
    assert seconds == pytest.approx([2 * 3 * (1e-3 + 1e-3)])
    assert all_reduce_s(np.array([[2]]), latency_s=latency, inverse_bandwidth=inverse, bytes_=np.array([4e6])) == pytest.approx([0])


def test_gradients_between_machines_go_in_two_levels_where_that_is_cheaper() -> None:
    """Two machines with two devices each. Flat: both passes at the crossing edge, 3·(α + b/(4β)) each.

    Two-level: (α + b/(2β)) inside, (α + b/(2β)) across, for each pass. With b = 4e9, across 1e9 B/s, inside 1e11 B/s and no latency:
    flat 2·3·1 = 6 s; two-level 2·(0.02 + 2) = 4.04 s.
    """
    machine, latency, inverse = links([0, 0, 1, 1], inside=(0, 1e11), across=(0, 1e9))
    seconds = gradient_sync_s((0, 2, 1, 3), machine=machine, latency_s=latency, inverse_bandwidth=inverse, reduce_bytes=4e9, gather_bytes=4e9)
    assert seconds == pytest.approx(4.04)


def test_gradients_of_one_machine_use_the_flat_ring() -> None:
    machine, latency, inverse = links([0, 0, 0], inside=(1e-3, 1e9), across=(1, 1))
    seconds = gradient_sync_s((0, 1, 2), machine=machine, latency_s=latency, inverse_bandwidth=inverse, reduce_bytes=6e9, gather_bytes=3e9)
    assert seconds == pytest.approx(2 * (1e-3 + 2) + 2 * (1e-3 + 1))
    assert gradient_sync_s((0,), machine=machine, latency_s=latency, inverse_bandwidth=inverse, reduce_bytes=6e9, gather_bytes=3e9) == 0


def test_a_hop_waits_for_its_slowest_shard() -> None:
    _, latency, inverse = links([0, 0, 0, 1], inside=(1e-6, 1e10), across=(1e-3, 1e9))
    seconds = hop_s(np.array([[0, 1]]), np.array([[2, 3]]), latency_s=latency, inverse_bandwidth=inverse, bytes_=np.array([1e6]))
    assert seconds == pytest.approx([1e-3 + 1e-3])
