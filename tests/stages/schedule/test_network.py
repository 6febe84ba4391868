"""Collectives and transfers, worked out by hand from α and β; first the formulas alone, then what the kernel makes of them."""

from __future__ import annotations

import pytest

from artifacts.job import Engine
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import Kind, job, layout, small_model, task_price, topology
from tests.stages.schedule.reference.fleet import Fleet
from tests.stages.schedule.reference.links import all_reduce, hop, ring_edges, ring_pass

BOX = Kind("box", 1e6, 1e12, 2**33, vendor="cpu", inside=1e9)
INSIDE, LAN = 5e-6, (1e-3, 1e5)
"""One-way latency between devices of a machine, as the builder has it; latency and bytes/s between machines."""
PARAMS = small_model().params()
ACTIVATIONS = 8 * 8 * 2
"""Bytes of one sequence of 4 + 4 tokens, 8 hidden, 2 bytes each."""


def problem(counts: list[int], *, inside: float = 1e9, lan: tuple[float, float] = LAN) -> Problem:
    """Machines with so many devices; 8 sequences, one optimizer step."""
    work = job(small_model(), prompts=4, responses=2, micro=1, prompt=(4, 4), response=(4, 4), engine=Engine())
    return build_problem(work, topology([(Kind("box", 1e6, 1e12, 2**33, vendor="cpu", inside=inside), n) for n in counts], lan=lan))


def fleet(counts: list[int], *, inside: float, lan: tuple[float, float]) -> Fleet:
    return Fleet.of(problem(counts, inside=inside, lan=lan))


def test_a_ring_pass_moves_every_part_once() -> None:
    """(n − 1)·(α + bytes/(n·β))."""
    one = fleet([4], inside=1e9, lan=LAN)
    assert ring_pass(one, [0], 1e9) == 0
    assert ring_pass(one, [0, 1, 2, 3], 8e9) == pytest.approx(3 * (INSIDE + 2.0))


def test_all_reduce_is_two_passes_at_the_slowest_edge() -> None:
    """Ring 0, 1 and 2 on one machine and 3 on another: edges 2→3 and 3→0 cross. 2·3·(1e-3 + 4e6/(4·1e9))."""
    two = fleet([3, 1], inside=1e11, lan=(1e-3, 1e9))
    assert all_reduce(two, [3, 1, 0, 2], 4e6) == pytest.approx(2 * 3 * (1e-3 + 1e-3))
    assert all_reduce(two, [2], 4e6) == 0


def test_a_ring_between_machines_goes_in_two_levels_where_that_is_cheaper() -> None:
    """Two machines with two devices each. Flat: 3·(α + b/(4β)) at the crossing edge.

    Two-level: (α + b/(2β)) inside, (α + b/(2β)) across. With b = 4e9, across 1e9 B/s, inside 1e11 B/s and next to no latency:
    flat 3·1 = 3 s; two-level 0.02 + 2 = 2.02 s.
    """
    two = fleet([2, 2], inside=1e11, lan=(1e-9, 1e9))
    assert ring_pass(two, [0, 2, 1, 3], 4e9) == pytest.approx(2.02, rel=1e-5)


def test_rings_at_one_time_share_the_links_between_machines_only() -> None:
    """Two rings cross between two machines: each has half the bandwidth there, and all of it inside."""
    two = fleet([2, 2], inside=1e9, lan=(1e-3, 1e9))
    crossings = two.crossings([*ring_edges([0, 2]), *ring_edges([1, 3]), (0, 1)])
    assert crossings == {(0, 1): 2, (1, 0): 2}
    assert ring_pass(two, [0, 2], 4e9, crossings) == pytest.approx(1e-3 + 4)
    assert ring_pass(two, [0, 1], 4e9, crossings) == pytest.approx(INSIDE + 2)


def test_a_hop_waits_for_its_slowest_shard() -> None:
    """Shard 0 stays inside, shard 1 crosses."""
    two = fleet([3, 1], inside=1e10, lan=(1e-3, 1e9))
    assert hop(two, [0, 1], [2, 3], 1e6) == pytest.approx(1e-3 + 1e-3)


def sync_s(p: Problem, where: list[list[list[int]]], layers: tuple[int, ...] = (4,)) -> float:
    """The kernel's seconds of one gradient synchronisation."""
    return task_price(p, "actor_training", layout(where, layers, (1,) * len(where), (1,) * len(where), 1)).terms["dp"]


def test_the_kernel_synchronises_gradients_of_one_machine_on_a_flat_ring() -> None:
    """Three replicas: reduce-scatter of 4 bytes a parameter, all-gather of 2."""
    assert sync_s(problem([3]), [[[0]], [[1]], [[2]]]) == pytest.approx(4 * INSIDE + (2 / 3) * 6 * PARAMS / 1e9)


def test_the_kernel_synchronises_gradients_between_machines_in_two_levels_where_that_is_cheaper() -> None:
    """Replicas 0, 1 on one machine, 2, 3 on another, dealt crosswise: (α + b/(2β)) inside and across, for 4 and for 2 bytes a parameter."""
    p = problem([2, 2])
    two_level = 2 * (INSIDE + 1e-3) + 6 * PARAMS / 2 * (1 / 1e9 + 1 / 1e5)
    flat = 2 * 3 * 1e-3 + 3 * 6 * PARAMS / 4 / 1e5
    assert two_level < flat
    assert sync_s(p, [[[0]], [[2]], [[1]], [[3]]]) == pytest.approx(two_level)


def test_the_kernel_stays_on_the_flat_ring_where_machines_hold_unequal_parts() -> None:
    flat = 2 * 2 * 1e-3 + 2 * 6 * PARAMS / 3 / 1e5
    assert sync_s(problem([2, 1]), [[[0]], [[2]], [[1]]]) == pytest.approx(flat)


def test_the_kernel_s_gradient_rings_of_two_shards_share_the_link() -> None:
    """dp 2 over machines, tp 2 inside: two rings at one time, each of half the parameters at half the bandwidth."""
    shared = 2 * 1e-3 + 6 * (PARAMS / 2) / 2 * 2 / 1e5
    assert sync_s(problem([2, 2]), [[[0, 1]], [[2, 3]]]) == pytest.approx(shared)


def test_the_kernel_s_hops_of_two_replicas_share_the_link() -> None:
    """Two pipelines from machine 0 to machine 1: forward and backward, 4·α + bytes/(β/2), as a CPU's hop waits for four messages. Alone each
    would have all of β."""
    p = problem([2, 2])
    alone = layout([[[0], [2]]], (3, 1), (8,), (1,), 8)
    both = layout([[[0], [2]], [[1], [3]]], (3, 1), (8, 8), (1, 1), 8)
    hops = [task_price(p, "actor_training", where).terms["pp"] / 8 for where in (alone, both)]
    assert hops == pytest.approx([2 * (4e-3 + ACTIVATIONS / 1e5), 2 * (4e-3 + 2 * ACTIVATIONS / 1e5)])


def test_the_kernel_s_tensor_parallel_rings_of_two_replicas_share_the_link() -> None:
    """tp 2 across machines, two replicas: all-reduces (4 in forward and backward, layer and micro-batch) of 2·(α + bytes/(2·β/2))."""
    p = problem([2, 2])
    both = task_price(p, "actor_training", layout([[[0, 2]], [[1, 3]]], (4,), (8, 8), (1, 1), 8))
    assert both.terms["tp"] == pytest.approx(8 * 4 * 4 * 2 * (1e-3 + ACTIVATIONS / 1e5))


def test_a_link_whose_probe_failed_is_never_cheap() -> None:
    work = job(small_model(), prompts=4, responses=2, micro=1, prompt=(4, 4), response=(4, 4))
    p = build_problem(work, topology([(BOX, 1), (BOX, 1)], lan=LAN, failed=[(0, 1)]))
    assert sync_s(p, [[[0]], [[1]]]) > 1e12
