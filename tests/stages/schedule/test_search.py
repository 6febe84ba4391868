"""The search: deterministic, legal, better than luck, as good as trying everything where that can be done."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.errors import InfeasiblePlan
from artifacts.job import Constraints, Engine, Job
from artifacts.topology import Topology
from stages.profile.basis import anchored
from stages.profile.inventory import build
from stages.profile.scenarios import scenario_inventory
from stages.schedule.draft import Cut, Draft
from stages.schedule.legality import broken_rules
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.problem import build_problem
from stages.schedule.search.auto.solver import auto, ready
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.locality import localised
from stages.schedule.search.nested_halving import halving, sha_ea
from stages.schedule.search.space import cuts, draft_group, groupings
from stages.schedule.solve import solve
from tests.stages.schedule.builders import A100, CPU, L4, L40S, SLOW_CPU, Kind, big_job, job, topology

MIXED = topology([(A100, 4), (L40S, 4), (L4, 4)], regions=["west", "west", "east"])


def search(work: Job, fleet: Topology, *, solver: str = "auto", evaluations: int = 300, seed: int = 0) -> object:
    return solve(work, fleet, parameters=ScheduleParameters(solver=solver, evaluations=evaluations, seed=seed))  # type: ignore[arg-type]


@pytest.mark.parametrize(("solver", "evaluations"), [("auto", 3000), ("sha-ea", 300)])
def test_the_same_seed_gives_the_same_plan(solver: str, evaluations: int) -> None:
    first, second = (search(big_job("Qwen3-1.7B"), MIXED, solver=solver, evaluations=evaluations, seed=3) for _ in range(2))
    assert first.plan == second.plan and first.prediction == second.prediction  # type: ignore[attr-defined]
    assert first.search.identity() == second.search.identity()  # type: ignore[attr-defined]


@pytest.mark.parametrize("solver", ["auto", "sha-ea"])
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_the_search_beats_luck_at_equal_evaluations(algorithm: str, solver: str) -> None:
    work = big_job("Qwen3-4B", algorithm=algorithm)
    found = search(work, MIXED, solver=solver, evaluations=400).prediction.iteration_time_s  # type: ignore[attr-defined]
    lucky = search(work, MIXED, solver="random", evaluations=400).prediction.iteration_time_s  # type: ignore[attr-defined]
    assert found < 0.95 * lucky


def test_more_evaluations_never_end_worse_within_one_run() -> None:
    points = search(big_job("Qwen3-1.7B"), MIXED, evaluations=20_000).search.trajectory  # type: ignore[attr-defined]
    assert len(points) > 2
    assert all(a.cost_s > b.cost_s and a.evaluations <= b.evaluations for a, b in pairwise(points))


@pytest.mark.parametrize("solver", ["auto", "sha-ea"])
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
@pytest.mark.parametrize("kinds", [[(CPU, 1), (SLOW_CPU, 1)], [(CPU, 2), (SLOW_CPU, 1)], [(CPU, 1), (SLOW_CPU, 1), (Kind("third", 1e10, 4e9, 2**33, "cpu"), 1)]])
def test_tiny_instances_are_solved_as_by_trying_everything(kinds: list[tuple[Kind, int]], algorithm: str, solver: str) -> None:
    """All groupings, all ordered choices of devices, all cuts and micro-batches: the search finds the best of them."""
    work, fleet = job("tiny-qwen3", algorithm=algorithm, micro=2), topology(kinds)
    evaluator = Evaluator(build_problem(work, fleet), Budget(10**9))
    best = min(price.cost for draft in _everything(evaluator) if (price := evaluator.plan(draft)) is not None)
    found = search(work, fleet, solver=solver, evaluations=3000).prediction.iteration_time_s  # type: ignore[attr-defined]
    assert found == pytest.approx(best, rel=1e-9)


def _everything(evaluator: Evaluator) -> list[Draft]:
    problem, found = evaluator.problem, []
    devices = range(problem.fleet.size)
    for grouping in groupings(problem):
        for count in range(len(grouping), len(devices) + 1):
            for order in permutations(devices, count):
                for first in range(1, count + 1) if len(grouping) == 2 else [count]:
                    parts = [order[:first], order[first:]] if len(grouping) == 2 else [order]
                    if not all(parts):
                        continue
                    options = [[draft_group(problem, t, p, c, 1) for c in cuts(problem, t, p, thorough=True)] for t, p in zip(grouping, parts, strict=True)]
                    if len(options) == 1:
                        found += [Draft(groups=(a,)) for a in options[0]]
                    else:
                        found += [Draft(groups=(a, b)) for a in options[0] for b in options[1]]
    return found


fleets = st.lists(st.tuples(st.sampled_from([A100, L40S, L4]), st.integers(1, 3)), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets, st.sampled_from(["Qwen3-0.6B", "Qwen3-1.7B"]), st.sampled_from(["ppo", "grpo"]), st.sampled_from(["sync", "async"]),
       st.integers(1, 24), st.sampled_from(["auto", "sha-ea", "random"]), st.booleans(), st.sets(st.sampled_from(list(combinations(range(4), 2))), max_size=3))
def test_plans_are_always_legal(
    machines: list[tuple[Kind, int]], model: str, algorithm: str, mode: str, prompts: int, solver: str, offload: bool, failed: set[tuple[int, int]]
) -> None:
    """Whatever the fleet, its missing links and the job: a plan that breaks no rule, or a refusal that names what is broken."""
    work = big_job(model, algorithm=algorithm, mode=mode, prompts=prompts, engine=Engine(recompute="full", offload=offload))
    fleet = topology(machines, regions=["a", "b", "a", "b"][:len(machines)], failed=sorted(failed))
    try:
        found = search(work, fleet, solver=solver, evaluations=80)
    except InfeasiblePlan as error:
        assert error.details["violations"] and error.fix
        return
    assert broken_rules(found.problem, found.plan) == []  # type: ignore[attr-defined]
    assert found.prediction.bound_s <= found.prediction.iteration_time_s  # type: ignore[attr-defined]
    used = {d for g in found.plan.groups for d in g.devices}  # type: ignore[attr-defined]
    assert used | set(found.plan.idle_devices) == {d.id for d in fleet.devices}  # type: ignore[attr-defined]
    assert all(found.plan.idle_devices.values()) and all(g.reason for g in found.plan.groups)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
def test_replicas_of_a_forward_pass_are_not_put_where_no_link_joins_them(seed: int) -> None:
    """The published setting in which no link joins the edge with one region; reference inference takes what the others leave."""
    fleet = anchored(build(scenario_inventory("multi-region-hybrid"), where="hybrid"), [])
    found = search(big_job("Qwen3-8B", algorithm="grpo", mode="async", prompts=384, mini=96), fleet, evaluations=12_000, seed=seed)
    assert broken_rules(found.problem, found.plan) == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("solver", ["auto", "sha-ea", "sha-ea-published"])
@pytest.mark.parametrize("part", ["halving", "local-search", "balancing", "seeds"])
def test_every_part_of_a_search_can_be_switched_off(solver: str, part: str) -> None:
    parameters = ScheduleParameters(solver=solver, evaluations=700, without=[part])  # type: ignore[arg-type, list-item]
    found = solve(big_job("Qwen3-1.7B", algorithm="grpo"), MIXED, parameters=parameters)
    assert broken_rules(found.problem, found.plan) == []
    names, rounds = [arm.name for arm in found.search.arms], [arm.rounds for arm in found.search.arms]
    if part == "balancing":
        layouts = list(found.plan.tasks.values())
        assert all(len(set(s.layers)) == 1 and max(s.local_batch_sequences) - min(s.local_batch_sequences) <= 1 for s in layouts)
    if part == "halving":
        assert max(rounds) <= 1
    if part == "local-search":
        assert solver != "auto" or names == []
        assert not any(name.startswith("polish") for name in names)


def test_the_published_local_search_brings_a_group_s_devices_nearer_and_keeps_pins() -> None:
    problem = build_problem(big_job("Qwen3-1.7B", algorithm="grpo"), MIXED)
    names = [d.id for d in problem.fleet.devices]
    mixed = [tuple(names.index(n) for n in ("m0.0", "m1.0", "m2.0", "m0.1")), tuple(i for i, n in enumerate(names) if n not in ("m0.0", "m1.0", "m2.0", "m0.1"))]
    tasks = [("rollout",), ("reference_inference", "actor_training")]
    draft = Draft(groups=tuple(draft_group(problem, t, d, Cut(1, 1, 1, 1) if "rollout" not in t else None, 1) for t, d in zip(tasks, mixed, strict=True)))
    near = [g.devices for g in localised(problem, draft).groups]
    assert [len(d) for d in near] == [4, 8] and sorted(d for g in near for d in g) == list(range(12))
    assert len({int(problem.fleet.machine[d]) for d in near[0]}) == 1
    pinned = big_job("Qwen3-1.7B", algorithm="grpo", constraints=Constraints(pin={"rollout": ["m0", "m1"]}))
    where = localised(build_problem(pinned, MIXED), draft).groups[0].devices
    assert not {"m2.1", "m2.2", "m2.3"} & {names[d] for d in where}


def test_an_earlier_plan_is_where_the_search_starts() -> None:
    """With next to no budget the old plan is still there; on a fleet that lost a device it is cut anew from what is left."""
    work = big_job("Qwen3-1.7B", algorithm="grpo")
    parameters = ScheduleParameters(evaluations=1)
    fleet, smaller = topology([(A100, 4), (L40S, 4)]), topology([(A100, 4), (L40S, 3)])
    old = solve(work, fleet, parameters=ScheduleParameters(evaluations=500))
    warm, cold = solve(work, fleet, parameters=parameters, warm=[old.plan]), solve(work, fleet, parameters=parameters)
    assert warm.prediction.iteration_time_s <= old.prediction.iteration_time_s < cold.prediction.iteration_time_s
    reduced, fresh = solve(work, smaller, parameters=parameters, warm=[old.plan]), solve(work, smaller, parameters=parameters)
    assert broken_rules(reduced.problem, reduced.plan) == []
    assert reduced.prediction.iteration_time_s <= fresh.prediction.iteration_time_s


def test_halving_gives_one_arm_everything_and_the_better_half_twice_as_much() -> None:
    spent: dict[str, float] = {}

    def run(arm: str, share: float) -> None:
        spent[arm] = spent.get(arm, 0) + share

    halving(["a"], 100, run=run, cost=lambda a: 0, left=lambda: 1)
    assert spent == {"a": 100}
    spent.clear()
    alive = halving(["a", "b", "c", "d"], 80, run=run, cost="dcba".index, left=lambda: 1)
    assert spent == {"a": 10, "b": 10, "c": 30, "d": 30} and set(alive) == {"c", "d"}
    assert halving([], 10, run=run, cost=lambda a: 0, left=lambda: 1) == []


@pytest.mark.parametrize("run", [auto, sha_ea])
def test_a_budget_of_seconds_is_kept(run: Callable[..., object]) -> None:
    problem = build_problem(big_job("Qwen3-4B"), MIXED)
    ready(problem)
    evaluator = Evaluator(problem, Budget(10**9, seconds=1.0))
    run(evaluator, seed=0)
    assert 0 < evaluator.evaluations < 10**6 and evaluator.best is not None
