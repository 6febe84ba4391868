"""What the user fixes is kept, and where it cannot be, the refusal names it."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.errors import InfeasiblePlan, InputError
from artifacts.job import Constraints, Engine, Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from stages.schedule.parameters import ScheduleParameters, SolverName
from stages.schedule.problem import build_problem
from stages.schedule.solve import Solution, solve
from stages.schedule.solvers import solver_named
from tests.stages.schedule.brute_force import best_of_everything
from tests.stages.schedule.builders import A100, L4, big_job, topology

FLEET = topology([(A100, 2), (A100, 2), (L4, 2)], regions=["eu", "us", "eu"], wan=(1e-3, 5e9))


def plan(constraints: Constraints, fleet: Topology = FLEET, *, solver: SolverName = "auto", work: Job | None = None) -> Solution:
    work = (work or big_job("Qwen3-1.7B", algorithm="grpo")).model_copy(update={"constraints": constraints})
    return solve(work, fleet, parameters=ScheduleParameters(solver=solver, evaluations=300))


def refused(constraints: Constraints, fleet: Topology = FLEET, *, work: Job | None = None) -> InfeasiblePlan:
    with pytest.raises(InfeasiblePlan) as caught:
        plan(constraints, fleet, work=work)
    return caught.value


def named(error: InfeasiblePlan) -> set[str]:
    return {v["constraint"] for v in error.details["violations"]}


SOLVERS: list[SolverName] = ["auto", "sha-ea", "ilp", "verl", "streamrl", "deap", "random"]


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_keeps_every_constraint(solver: SolverName) -> None:
    """All of them at once."""
    constraints = Constraints(keep_data_in=["eu"], forbid_regions=["us"], forbid_devices=["m0.1"], max_devices=3,
                              pin={"actor_training": ["m2"]}, fix={"actor_training": {"tp": 2}})
    found = plan(constraints, solver=solver, work=big_job("Qwen3-0.6B", algorithm="grpo"))
    _kept(found.plan, constraints)
    assert set(found.plan.tasks["actor_training"].ranks) == {"m2.0", "m2.1"}
    assert "constraints.forbid_regions" in found.plan.idle_devices["m1.0"]
    assert found.plan.idle_devices["m0.1"] == "device m0.1 is forbidden by constraints.forbid_devices"


TASKS = ("rollout", "reference_inference", "actor_training")
MACHINES = st.lists(st.sampled_from(["m0", "m1", "m2"]), min_size=1, max_size=3, unique=True)
DRAWN = st.fixed_dictionaries({}, optional={
    "pin": st.dictionaries(st.sampled_from(TASKS), MACHINES, max_size=2),
    "forbid_regions": st.lists(st.sampled_from(["eu", "us"]), max_size=1),
    "keep_data_in": st.lists(st.sampled_from(["eu", "us"]), max_size=2, unique=True),
    "forbid_devices": st.lists(st.sampled_from(["m0", "m0.1", "m1.0", "m2"]), max_size=2, unique=True),
    "max_devices": st.integers(1, 6),
    "fix": st.dictionaries(st.sampled_from(TASKS), st.dictionaries(st.sampled_from(["dp", "tp"]), st.sampled_from([1, 2, 4]), min_size=1), max_size=2),
})


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(DRAWN.map(lambda fields: Constraints(**fields)))
def test_whatever_is_constrained_is_kept_or_refused_by_name(solver: SolverName, constraints: Constraints) -> None:
    """The job alone fits every device, so what is refused is refused because of a constraint."""
    work = big_job("Qwen3-0.6B", algorithm="grpo", prompts=8, constraints=constraints)
    try:
        found = solve(work, FLEET, parameters=ScheduleParameters(solver=solver, evaluations=60))
    except InfeasiblePlan as error:
        set_here = {k for k, v in constraints.model_dump().items() if v}
        assert named(error) and {n.partition(".")[0] for n in named(error)} <= set_here, error.message
        return
    except InputError as error:
        assert solver == "streamrl" and "this job's constraints" in error.message
        return
    _kept(found.plan, constraints)
    assert all(found.plan.idle_devices.values())


def _kept(found: Plan, constraints: Constraints) -> None:
    """Read off the plan, independently of the scheduler's own rules."""
    region = {m.name: m.region for m in FLEET.machines}
    used = {d for g in found.groups for d in g.devices}
    assert len(used) <= (constraints.max_devices or len(used)) and len(used) + len(found.idle_devices) == len(FLEET.devices)
    for device in used:
        machine = device.split(".")[0]
        assert region[machine] not in constraints.forbid_regions and not {device, machine} & set(constraints.forbid_devices)
        assert not constraints.keep_data_in or region[machine] in constraints.keep_data_in
    for task, machines in constraints.pin.items():
        assert {r.split(".")[0] for r in found.tasks[task].ranks} <= set(machines)
    for task, degrees in constraints.fix.items():
        assert all(getattr(found.tasks[task], degree) == value for degree, value in degrees.items())


@pytest.mark.parametrize("solver", SOLVERS)
def test_fewer_devices_are_chosen_and_the_rest_says_what_it_would_gain(solver: SolverName) -> None:
    """The best two of six: an A100's pair, not the slow ones."""
    found = plan(Constraints(max_devices=2), solver=solver)
    assert {d.split(".")[0] for g in found.plan.groups for d in g.devices} in ({"m0"}, {"m1"})
    reasons = set(found.plan.idle_devices.values())
    assert all(r.startswith("constraints.max_devices allows 2 devices") for r in reasons)
    if not solver_named(solver)[1].baseline:
        assert all(re.search(r"; (faster|no faster|slower) with the 2 devices of m\d: [\d.]+ m?s an iteration against [\d.]+ m?s without", r) for r in reasons)


def test_a_limit_below_what_is_fastest_binds_the_proved_optimum_and_one_above_does_not() -> None:
    work = big_job("Qwen3-0.6B", algorithm="grpo", prompts=6)
    seconds = {most: plan(Constraints(max_devices=most), solver="ilp", work=work).search for most in (2, 4, 6)}
    bounds = [s.proved_bound_s or 0.0 for s in seconds.values()]
    assert {s.status for s in seconds.values()} == {"optimal"} and bounds == sorted(bounds, reverse=True) and bounds[0] > bounds[1]
    free = plan(Constraints(), solver="ilp", work=work).search.proved_bound_s
    assert bounds[-1] == pytest.approx(free, rel=1e-9)
    best = best_of_everything(build_problem(work.model_copy(update={"constraints": Constraints(max_devices=2)}), FLEET))
    assert bounds[0] == pytest.approx(best, rel=1e-9)


def test_a_whole_machine_can_be_forbidden() -> None:
    found = plan(Constraints(forbid_devices=["m1", "m2"]))
    assert {d for g in found.plan.groups for d in g.devices} <= {"m0.0", "m0.1"}


@pytest.mark.parametrize(("constraints", "key"), [
    (Constraints(keep_data_in=["mars"]), "keep_data_in"),
    (Constraints(forbid_regions=["eu", "us"]), "forbid_regions"),
    (Constraints(forbid_devices=["m0", "m1", "m2"]), "forbid_devices"),
    (Constraints(keep_data_in=["eu"], pin={"actor_training": ["m1"]}), "keep_data_in"),
    (Constraints(fix={"actor_training": {"tp": 3}}), "fix.actor_training"),
    (Constraints(max_devices=1, fix={"actor_training": {"dp": 2}}), "max_devices"),
    (Constraints(max_devices=1, pin={"rollout": ["m0"], "actor_training": ["m1"]}), "max_devices"),
])
def test_what_cannot_be_kept_is_named(constraints: Constraints, key: str) -> None:
    error = refused(constraints)
    assert key in named(error)
    assert key in error.message + error.fix


def test_a_pool_larger_than_its_machine_is_refused_by_the_machines_name() -> None:
    """Case: pools of [3, 3] on nodes of 4 and 2; the sum of 6 would be there."""
    error = refused(Constraints(pin={"actor_training": ["m1"]}, fix={"actor_training": {"dp": 3}}), topology([(L4, 4), (L4, 2)]))
    assert "fixed degrees need 3 devices, it may use 2 (m1 has 2)" in error.message


def test_a_limit_that_leaves_too_little_memory_is_named() -> None:
    fleet = topology([(L4, 4)])
    error = refused(Constraints(max_devices=1), fleet, work=big_job("Qwen3-1.7B", algorithm="grpo"))
    assert named(error) == {"max_devices"} and error.fix == "raise constraints.max_devices to 2"
    error = refused(Constraints(max_devices=1), fleet, work=big_job("Qwen3-1.7B", algorithm="grpo", engine=Engine(recompute="full", offload=True), micro=16))
    assert named(error) == {"max_devices"}


def test_a_pin_to_a_machine_that_is_too_small_is_named_after_it_was_seen_that_dropping_it_helps() -> None:
    error = refused(Constraints(pin={"actor_training": ["m1"]}), topology([(A100, 4), (L4, 1)]), work=big_job("Qwen3-4B", algorithm="grpo"))
    assert any(v["rule"] == "memory" for v in error.details["violations"])
    assert named(error) == {"pin.actor_training"} and error.fix == "drop or loosen constraints.pin.actor_training"
