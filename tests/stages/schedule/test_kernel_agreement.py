"""The compiled kernel against the plain reference, on plans at random; and pricing again what changed against pricing from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stages.schedule.cost.iteration import GroupPrice, PlanPrice, compose, price_layouts
from stages.schedule.cost.kernel import price as kernel
from stages.schedule.cost.tables import build_ledger, compiled, flat_plan, write_task
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import Kind, job, topology
from tests.stages.schedule.random_problems import Layouts, random_group, random_plan, random_problem
from tests.stages.schedule.reference import iteration as reference
from tests.stages.schedule.reference.fleet import Fleet

PROBLEMS, PLANS = 320, 8
"""2,560 plans."""

seeds = st.integers(0, 2**64 - 1)
many = settings(max_examples=PROBLEMS, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=0)


def term_close(value: float, whole: float) -> object:
    """A term that is what is left of a difference (tail, bubble, wait for memory) is as exact as what it is taken from."""
    return pytest.approx(value, rel=1e-9, abs=1e-12 * whole)


def assert_group_agrees(found: GroupPrice, expected: reference.GroupPrice) -> None:
    assert set(found.prices) == set(expected.terms)
    for task, terms in expected.terms.items():
        whole = sum(terms.values())
        assert found.prices[task].time_s == close(whole), task
        assert set(found.prices[task].terms) <= set(terms), task
        for term, seconds in terms.items():
            assert found.prices[task].terms.get(term, 0.0) == term_close(seconds, whole), (task, term)
    for kind in ("resident", "working", "offloaded"):
        ours: dict[str, np.ndarray] = getattr(found.memory, kind)
        theirs = {key: by_device for key, by_device in getattr(expected.memory, kind).items() if any(by_device.values())}
        assert {key for key, bytes_ in ours.items() if bytes_.any()} == set(theirs), kind
        for key, by_device in theirs.items():
            values = [by_device.get(int(d), 0.0) for d in found.memory.devices]
            assert ours[key] == pytest.approx(values, rel=1e-9, abs=0), (kind, key)
    if "rollout" in found.layouts:
        assert list(found.layouts["rollout"].micro) == expected.in_flight
    assert found.overflow == pytest.approx(expected.overflow, rel=1e-9, abs=1e-12)


def priced(problem: Problem, plan: Sequence[Layouts]) -> PlanPrice:
    groups = [price_layouts(problem, tuple(layouts), layouts) for layouts in plan]
    return compose(problem, [g for g in groups if g is not None])


@many
@given(seeds)
def test_the_kernel_agrees_with_the_reference(seed: int) -> None:
    random = Random(seed)
    problem = random_problem(random)
    for _ in range(PLANS):
        plan = random_plan(problem, random)
        found, expected = priced(problem, plan), reference.price(problem, plan)
        assert len(found.groups) == len(plan)
        for ours, theirs in zip(found.groups, expected.groups, strict=True):
            assert_group_agrees(ours, theirs)
        assert found.weight_update_s == close(expected.update_s)
        assert found.iteration_s == close(expected.iteration_s)
        assert found.overflow == pytest.approx(expected.overflow, rel=1e-9, abs=1e-12)


@settings(parent=many, max_examples=60)
@given(seeds)
def test_pricing_again_what_changed_is_pricing_from_nothing(seed: int) -> None:
    """A group that is laid out anew on its devices, and then one task of it, in the arrays that priced the plan before."""
    random = Random(seed)
    problem = random_problem(random)
    tables, names = compiled(problem).tables, [t.name for t in problem.tasks]
    plan = random_plan(problem, random)
    flat, ledger = flat_plan(problem, plan), build_ledger(tables)
    kernel.price_plan(tables, flat, ledger, len(plan))
    for step in range(2 * PLANS):
        g = random.randrange(len(plan))
        devices = sorted({d for layout in plan[g].values() for d in layout.devices()})
        anew = random_group(problem, random, list(plan[g]), devices)
        task = random.choice(list(anew))
        if step % 2:  # one task, if that leaves the group on the devices it had
            anew = {**plan[g], task: anew[task]}
            if {d for layout in anew.values() for d in layout.devices()} != set(devices):
                continue
        plan[g] = anew
        for name, layout in anew.items():
            write_task(flat, names.index(name), layout, g)
        if step % 2:
            kernel.reprice_group(tables, flat, ledger, g, names.index(task))
        else:
            kernel.price_group(tables, flat, ledger, g)
        again = kernel.compose(tables, flat, ledger, len(plan))
        fresh = build_ledger(tables)
        assert again == close(kernel.price_plan(tables, flat_plan(problem, plan), fresh, len(plan)))
        assert ledger.total["overflow"][0] == pytest.approx(fresh.total["overflow"][0], rel=1e-12, abs=0)
        assert ledger.time.tolist() == fresh.time.tolist()
        assert ledger.groups[: len(plan)].tolist() == fresh.groups[: len(plan)].tolist()


KINDS = [Kind(name, flops, 1e9, 2**35, inside=1e9) for name, flops in (("a", 1e8), ("b", 1e7), ("c", 1e6))]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_replicas_on_machines_of_their_own_that_only_look_alike_are_priced_each(order: tuple[int, int]) -> None:
    """Equal links from rank to rank, one ring of four machines, the other of two machines with two devices each: rings differ."""
    problem = build_problem(job("tiny-qwen3", responses=8, mini=4), topology([(KINDS[0], 2)] * 6, lan=(1e-3, 1e7)))
    rings = [(0, 2, 4, 6), (8, 10, 9, 11)]
    assert_rollout_agrees(problem, [rings[x] for x in order])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_replicas_of_different_classes_are_priced_each(order: tuple[int, int]) -> None:
    """Classes (c, b, a) and (b, a, b): with golden-ratio weights both would add up to the same number, 3φ + 2φ² + φ³ = 2φ + φ² + 2φ³."""
    problem = build_problem(job("tiny-qwen3", responses=8, mini=4), topology([(kind, 2) for kind in KINDS + KINDS[:2]], lan=(5e-6, 1e9)))
    rings = [(4, 2, 0), (8, 6, 9)]
    assert_rollout_agrees(problem, [rings[x] for x in order])


def assert_rollout_agrees(problem: Problem, rings: Sequence[tuple[int, ...]]) -> None:
    ranks = np.array(rings)[:, None, :]
    even = (problem.work.sequences // 2,) * 2
    rollout = Layout(ranks=ranks, layers=(4,), local=even, micro=even, micro_batches=1)
    found = price_layouts(problem, ("rollout",), {"rollout": rollout})
    assert found is not None
    expected = reference.price_group(problem, Fleet.of(problem), {"rollout": rollout})
    alone = [
        price_layouts(
            problem, ("rollout",), {"rollout": Layout(ranks=ranks[i : i + 1], layers=(4,), local=even[:1], micro=even[:1], micro_batches=1)}
        )
        for i in range(2)
    ]
    seconds = [g.rollout_s for g in alone if g is not None]
    assert seconds[0] != pytest.approx(seconds[1], rel=1e-3)
    assert_group_agrees(found, expected)
