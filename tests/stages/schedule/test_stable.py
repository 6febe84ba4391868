"""Plans near the one in force: what moving costs, when nothing moves, when it pays."""

from __future__ import annotations

from functools import cache

import pytest

from artifacts.errors import InputError
from artifacts.holdings import bytes_per_param
from artifacts.job import Constraints, Job
from artifacts.plan import Group, Plan, Strategy
from artifacts.plan_diff import load_bytes
from artifacts.topology import Topology
from stages.schedule.alike import machines_alike, renamed
from stages.schedule.documents import draft_of_whole_replicas, plan_document, price_plan
from stages.schedule.draft import Cut, Draft, GroupDraft
from stages.schedule.legality import broken_rules
from stages.schedule.moving import Fetch, Moving
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.problem import build_problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.solve import Enough, Solution, solve
from stages.schedule.stable import price_as_it_stands
from tests.stages.schedule.builders import A100, CPU, L40S, big_job, job, topology

LAN = (2e-5, 1.25e9)
WORK = big_job("Qwen3-1.7B", algorithm="grpo")
PAIR = topology([(A100, 4), (L40S, 4)], lan=LAN)
GROWN = topology([(A100, 4), (L40S, 4), (A100, 4)], lan=LAN)


@cache
def in_force() -> Solution:
    return solve(WORK, PAIR, parameters=ScheduleParameters(evaluations=4000))


def again(fleet: Topology, *, stable: bool = True, horizon: int = 100, solver: str = "auto", work: Job = WORK) -> Solution:
    """Planned again from the plan in force, with another seed."""
    parameters = ScheduleParameters(solver=solver, evaluations=3000, seed=7, prefer_stable=stable, horizon_iterations=horizon)  # type: ignore[arg-type]
    return solve(work, fleet, parameters=parameters, warm=[in_force().plan], in_force=in_force().plan)


def one_device(device: str, work: Job) -> Plan:
    layers = work.model("actor").layers
    alone = Strategy(dp=1, pp=1, tp=1, layers=[layers], ranks=[device], local_batch_sequences=[32], micro_batch_sequences=4)
    tasks = dict.fromkeys(work.tasks(), alone)
    return Plan(job=work.identity(), topology_fingerprint="f", groups=[Group(name="all", tasks=list(tasks), devices=[device])], tasks=tasks)


def moved(work: Job, fleet: Topology, before: Plan, after: Plan) -> Fetch:
    problem = build_problem(work, fleet)
    price = price_plan(problem, after)
    assert price is not None
    return Moving(problem, before).of(price)


def test_everything_over_one_link_takes_its_bytes_over_its_bandwidth() -> None:
    work, fleet = job("tiny-qwen3"), topology([(CPU, 1), (CPU, 1)], lan=(3.0, 1e6))
    params = work.model("actor").params()
    weights, state = 3 * params * 2, params * 12
    found = moved(work, fleet, one_device("m0.0", work), one_device("m1.0", work))
    assert found.total_bytes == pytest.approx(weights + state) and found.seconds == pytest.approx(3.0 + (weights + state) / 1e6)
    assert moved(work, fleet, one_device("m0.0", work), one_device("m0.0", work)) == Fetch(0.0, 0.0)
    assert bytes_per_param(work, "actor_training") == (2, 12) and bytes_per_param(work, "rollout") == (2, 0)


def test_what_is_held_on_this_machine_comes_from_there_and_what_is_held_nowhere_by_the_fastest_way_in() -> None:
    """The actor's weights are on the rollout's device, beside the new one; the optimizer state was on a machine that is gone."""
    work, fleet = job("tiny-qwen3"), topology([(CPU, 2), (CPU, 1)], lan=(0.0, 1e6))
    params, before, after = work.model("actor").params(), one_device("m0.0", work), one_device("m0.1", work)
    lost = before.model_copy(update={"tasks": {**before.tasks, "actor_training": one_device("m9.0", work).tasks["actor_training"]}})
    found = moved(work, fleet, lost, after)
    assert found.total_bytes == pytest.approx(params * (3 * 2 + 12))
    assert found.seconds == pytest.approx(params * 12 / 1e6), "m1 has the only link into m0; what m0 gives itself takes less"


def test_what_is_fetched_is_what_the_plan_diff_says() -> None:
    """Of real plans: other degrees, other splits, other devices."""
    before, fleet = in_force().plan, GROWN
    for solver in ("verl", "random", "auto"):
        after = solve(WORK, fleet, parameters=ScheduleParameters(solver=solver, evaluations=300, seed=5)).plan  # type: ignore[arg-type]
        expected = sum(load_bytes(WORK, task, old, after.tasks[task]) for task, old in before.tasks.items())
        assert moved(WORK, fleet, before, after).total_bytes == pytest.approx(expected, abs=16) and expected > 0


@pytest.mark.parametrize("solver", ["auto", "sha-ea"])
def test_on_the_same_fleet_the_plan_in_force_stays_and_nothing_moves(solver: str) -> None:
    found = again(PAIR, horizon=1, solver=solver)
    moves = found.search.moves
    assert moves is not None and found.plan.identity() == in_force().plan.identity()
    assert (moves.moved, moves.fetch_bytes, moves.moving_s, moves.horizon_iterations) == (0, 0, 0.0, 1)
    assert moves.stays_s == found.prediction.iteration_time_s == pytest.approx(in_force().prediction.iteration_time_s)
    assert f"none of the {moves.tasklets} tasklets moves" in found.plan.reasons[-1]
    assert set(found.plan.idle_devices) == set(in_force().plan.idle_devices) and all(found.plan.idle_devices.values())


def test_a_machine_more_is_not_worth_the_move_for_an_iteration_and_is_for_many() -> None:
    """The same fleet, the same search: over one iteration the plan in force stays, and it is said what that costs; over many it moves."""
    kept, left = again(GROWN, horizon=1), again(GROWN, horizon=10**6)
    moves = kept.search.moves
    assert moves is not None and moves.fastest_s is not None and moves.fastest_moved is not None
    assert moves.moved == 0 and kept.prediction.iteration_time_s == moves.stays_s
    assert moves.fastest_s < 0.9 * kept.prediction.iteration_time_s and moves.fastest_moved > 0
    assert "less than this one" in kept.plan.reasons[-1] and f"moves {moves.fastest_moved}" in kept.plan.reasons[-1]
    gone = left.search.moves
    assert gone is not None and gone.fastest_s is not None and gone.stays_s is not None
    assert gone.moved > 0 and gone.fetch_bytes > 0
    assert left.prediction.iteration_time_s + gone.moving_s / 10**6 <= gone.fastest_s + 1.0 / 10**3
    assert left.prediction.iteration_time_s + gone.moving_s / 10**6 < gone.stays_s
    for solution in (kept, left):
        assert broken_rules(solution.problem, solution.plan) == []
        assert solution.prediction.plan == solution.plan.identity()


def test_moving_is_weighed_against_what_it_gains() -> None:
    """By the objective the plan chosen is at least as good as staying, and as what is found where moving is free."""
    found = again(GROWN, horizon=20)
    moves = found.search.moves
    assert moves is not None and moves.stays_s is not None and moves.fastest_s is not None
    objective = found.prediction.iteration_time_s + moves.moving_s / 20
    assert objective <= moves.stays_s * (1 + 1e-9)
    free = again(GROWN, stable=False)
    other = free.search.moves
    assert other is not None and other.horizon_iterations is None and other.fastest_s is None
    assert objective <= free.prediction.iteration_time_s + other.moving_s / 20 and moves.moving_s < other.moving_s


def test_when_devices_are_gone_the_replicas_that_are_whole_keep_their_places() -> None:
    smaller = topology([(A100, 4), (L40S, 3)], lan=LAN)
    found, problem = again(smaller, horizon=1), build_problem(WORK, smaller)
    assert price_as_it_stands(problem, in_force().plan) is None or "m1.3" not in {r for s in in_force().plan.tasks.values() for r in s.ranks}
    moves, free = found.search.moves, again(smaller, stable=False).search.moves
    assert moves is not None and free is not None and moves.moved <= free.moved and moves.fetch_bytes <= free.fetch_bytes
    draft = draft_of_whole_replicas(problem, in_force().plan)
    assert draft is not None and Evaluator(problem, Budget(10)).plan(draft) is not None


def test_the_same_plan_under_other_names_is_found_again() -> None:
    """Two alike machines have changed their parts, and two devices of a machine: nothing would have to move."""
    fleet = topology([(A100, 2), (L40S, 2), (L40S, 2)], lan=LAN)
    problem = build_problem(WORK, fleet)
    evaluator = Evaluator(problem, Budget(100))
    tasks = ("reference_inference", "actor_training")
    groups = (GroupDraft(("rollout",), (4, 5, 2), None, 1), GroupDraft(tasks, (0, 1), Cut(1, 2, 1, 4)))
    other = (GroupDraft(("rollout",), (2, 3, 4), None, 1), GroupDraft(tasks, (1, 0), Cut(1, 2, 1, 4)))
    before, price = evaluator.plan(Draft(groups)), evaluator.plan(Draft(other))
    assert before is not None and price is not None and before.cost == pytest.approx(price.cost)
    moving = Moving(problem, plan_document(problem, before, solver="", idle={}, reasons={}))
    again = evaluator.plan(renamed(problem, Draft(other), price, moving))
    assert again is not None and again.cost == pytest.approx(before.cost)
    assert moving.of(price).total_bytes > 0 and moving.of(again).total_bytes == 0
    pinned = build_problem(big_job("Qwen3-1.7B", algorithm="grpo", constraints=Constraints(pin={"rollout": ["m1"]})), fleet)
    assert machines_alike(problem, [2, 3], [4, 5]) and not machines_alike(pinned, [2, 3], [4, 5]) and not machines_alike(problem, [0, 1], [2, 3])


def test_a_search_that_is_stopped_still_says_what_moves() -> None:
    calls = 0

    def stop(done: float, total: float, best: float | None) -> None:
        nonlocal calls
        calls += 1
        if best is not None:
            raise Enough

    parameters = ScheduleParameters(evaluations=10**8, solver="sha-ea", prefer_stable=True, horizon_iterations=1)
    found = solve(WORK, PAIR, parameters=parameters, warm=[in_force().plan], in_force=in_force().plan, on_progress=stop)
    assert calls and found.search.status == "interrupted" and found.search.moves is not None and found.search.moves.moved == 0


@pytest.mark.parametrize(("fields", "says"), [
    ({"solver": "verl", "prefer_stable": True}, "verl is a baseline"),
    ({"solver": "exact", "workers": "ray"}, "exact does the same whatever its seed"),
])
def test_what_does_not_go_together_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        solve(WORK, PAIR, parameters=ScheduleParameters.model_validate(fields))


def test_moving_is_in_seconds_so_the_cheapest_sample_does_not_go_with_it() -> None:
    with pytest.raises(InputError, match="objective 'throughput'"):
        solve(big_job("Qwen3-1.7B", algorithm="grpo", objective="cost"), PAIR, parameters=ScheduleParameters(prefer_stable=True))
