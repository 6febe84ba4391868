"""What the user fixes is kept, and where it cannot be, the refusal names it."""

from __future__ import annotations

import pytest

from artifacts.errors import InfeasiblePlan
from artifacts.job import Constraints, Job
from artifacts.topology import Topology
from stages.schedule.parameters import ScheduleParameters, SolverName
from stages.schedule.solve import Solution, solve
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


@pytest.mark.parametrize("solver", ["auto", "sha-ea", "ilp", "verl", "deap", "random"])
def test_every_solver_keeps_every_constraint(solver: SolverName) -> None:
    constraints = Constraints(keep_data_in=["eu"], forbid_devices=["m0.1"], pin={"actor_training": ["m2"]}, fix={"actor_training": {"tp": 2}})
    found = plan(constraints, solver=solver, work=big_job("Qwen3-0.6B", algorithm="grpo"))
    used = {d for g in found.plan.groups for d in g.devices}
    assert used <= {"m0.0", "m2.0", "m2.1"}
    assert found.plan.tasks["actor_training"].tp == 2 and set(found.plan.tasks["actor_training"].ranks) == {"m2.0", "m2.1"}
    assert found.plan.idle_devices["m1.0"] == "data may not leave eu (constraints.keep_data_in)"
    assert found.plan.idle_devices["m0.1"] == "device m0.1 is forbidden by constraints.forbid_devices"


def test_a_whole_machine_can_be_forbidden() -> None:
    found = plan(Constraints(forbid_devices=["m1", "m2"]))
    assert {d for g in found.plan.groups for d in g.devices} <= {"m0.0", "m0.1"}


@pytest.mark.parametrize(("constraints", "key"), [
    (Constraints(keep_data_in=["mars"]), "keep_data_in"),
    (Constraints(forbid_regions=["eu", "us"]), "forbid_regions"),
    (Constraints(forbid_devices=["m0", "m1", "m2"]), "forbid_devices"),
    (Constraints(keep_data_in=["eu"], pin={"actor_training": ["m1"]}), "keep_data_in"),
    (Constraints(fix={"actor_training": {"tp": 3}}), "fix.actor_training"),
])
def test_what_cannot_be_kept_is_named(constraints: Constraints, key: str) -> None:
    error = refused(constraints)
    assert key in named(error)
    assert key in error.message + error.fix


def test_a_pool_larger_than_its_machine_is_refused_by_the_machines_name() -> None:
    """Case: pools of [3, 3] on nodes of 4 and 2; the sum of 6 would be there."""
    error = refused(Constraints(pin={"actor_training": ["m1"]}, fix={"actor_training": {"dp": 3}}), topology([(L4, 4), (L4, 2)]))
    assert "fixed degrees need 3 devices, it may use 2 (m1 has 2)" in error.message


def test_a_pin_to_a_machine_that_is_too_small_is_named_after_it_was_seen_that_dropping_it_helps() -> None:
    error = refused(Constraints(pin={"actor_training": ["m1"]}), topology([(A100, 4), (L4, 1)]), work=big_job("Qwen3-4B", algorithm="grpo"))
    assert any(v["rule"] == "memory" for v in error.details["violations"])
    assert named(error) == {"pin.actor_training"} and error.fix == "drop or loosen constraints.pin.actor_training"
