"""The exact solver: its optimum is the best of all plans, its objective is the cost model's, its bound is below both."""

from __future__ import annotations

from itertools import permutations

import pytest

from artifacts.job import Constraints, Engine, Job
from artifacts.topology import Topology
from stages.schedule.documents import price_plan
from stages.schedule.exact import ilp
from stages.schedule.exact.branch import branch
from stages.schedule.exact.cells import build_cells, sequences
from stages.schedule.exact.columns import enumerate_columns
from stages.schedule.exact.ilp import solve_programme
from stages.schedule.exact.prune import promising
from stages.schedule.exact.ready import ready_to_prove
from stages.schedule.exact.sweep import sweep_kernel
from stages.schedule.parameters import ScheduleParameters, SolverName
from stages.schedule.problem import build_problem
from stages.schedule.solve import Solution, solve
from stages.schedule.solvers import SOLVERS
from tests.stages.schedule.brute_force import best_of_everything
from tests.stages.schedule.builders import A100, CPU, L4, L40S, SLOW_CPU, big_job, job, topology


def exact(work: Job, fleet: Topology, *, solver: SolverName = "exact", evaluations: int = 200, seconds: float | None = None) -> Solution:
    """By branch and bound with the integer programme as judge, which must agree; or by the programme alone."""
    return solve(work, fleet, parameters=ScheduleParameters(solver=solver, evaluations=evaluations, seconds=seconds))


def small(algorithm: str = "grpo", mode: str = "sync", **fields: object) -> Job:
    return big_job("Qwen3-0.6B", algorithm=algorithm, mode=mode, prompts=6, micro=2, **fields)


TINY = {
    "two kinds apart": topology([(A100, 2), (L4, 2)], regions=["west", "east"]),
    "three kinds": topology([(A100, 1), (L40S, 2), (L4, 1)]),
    "equal machines": topology([(L40S, 2), (L40S, 2)], regions=["west", "east"]),
    "a link is down": topology([(A100, 2), (L4, 1), (L4, 1)], failed=[(0, 1)]),
}


@pytest.mark.parametrize("fleet", TINY.values(), ids=TINY.keys())
@pytest.mark.parametrize(("algorithm", "mode"), [("grpo", "sync"), ("ppo", "async")])
def test_the_optimum_is_the_best_of_all_plans(fleet: Topology, algorithm: str, mode: str) -> None:
    work = small(algorithm, mode)
    found = exact(work, fleet)
    best = best_of_everything(build_problem(work, fleet))
    assert _methods(found) == {"branch and bound": pytest.approx(best, rel=1e-9), "integer programme": pytest.approx(best, rel=1e-9)}
    assert found.search.status == "optimal" and found.search.proof_scope.startswith("all plans")
    assert best == pytest.approx(found.prediction.iteration_time_s, rel=1e-9)
    assert found.search.proved_bound_s == pytest.approx(best, rel=1e-6) and found.search.proved_bound_s <= best


def _methods(found: Solution) -> dict[str, float | None]:
    """What each method that came to its end says."""
    ended = [a for a in found.search.arms if not a.name.endswith("not finished")]
    return {a.name.partition(":")[0]: a.best_s for a in ended if a.name.startswith(("branch and bound", "integer programme"))}


def test_all_that_is_compiled_is_compiled_before_the_clock_starts_and_shipped() -> None:
    """``stages.schedule.warm`` runs every solver's ``ready``: no proof meets a function that was not compiled then."""
    problem = build_problem(small(), TINY["two kinds apart"])
    ready_to_prove(problem)
    compiled = list(sweep_kernel.signatures)  # type: ignore[attr-defined]
    exact(small(), TINY["two kinds apart"])
    assert compiled == list(sweep_kernel.signatures) and len(compiled) == 1  # type: ignore[attr-defined]
    assert SOLVERS["exact"].ready is SOLVERS["ilp"].ready is ready_to_prove


def test_five_devices_and_a_reward_model() -> None:
    work, fleet = small("grpo", reward="model", engine=Engine(recompute="full", offload=True)), topology([(A100, 1), (L4, 2), (L4, 1)], host=40 * 2**30)
    assert exact(work, fleet).prediction.iteration_time_s == pytest.approx(best_of_everything(build_problem(work, fleet)), rel=1e-9)


def test_ppo_on_devices_whose_memory_is_the_machines_own() -> None:
    """CPU devices: what the groups of one machine hold together is bounded, which no group by itself knows."""
    work, fleet = job("tiny-qwen3", algorithm="ppo", micro=2), topology([(CPU, 2), (SLOW_CPU, 2)], host=5 * 2**30)
    assert exact(work, fleet).prediction.iteration_time_s == pytest.approx(best_of_everything(build_problem(work, fleet)), rel=1e-9)


@pytest.mark.parametrize(("solver", "mode"), [("exact", "sync"), ("exact", "async"), ("ilp", "async")])
def test_the_objective_is_the_cost_models_value_of_the_plan(solver: SolverName, mode: str) -> None:
    """On eight devices in three regions, where the weight update between two groups is far from free."""
    fleet = topology([(A100, 4), (L40S, 2), (L40S, 2)], regions=["a", "b", "c"], wan=(2e-2, 0.2e9))
    found = exact(big_job("Qwen3-1.7B", algorithm="ppo", mode=mode, prompts=16), fleet, solver=solver)
    price = price_plan(found.problem, found.plan)
    assert found.search.status == "optimal" and price is not None
    assert found.search.proved_bound_s == pytest.approx(price.iteration_s, rel=1e-6)


def test_both_backends_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = build_problem(small("ppo", "async"), TINY["two kinds apart"])
    cells = build_cells(problem)
    columns = enumerate_columns(problem, cells, cutoff_s=1e6, stop=lambda: False).columns
    assert isinstance(ilp._solver(None), ilp.Highs)
    highs = solve_programme(problem, columns, cells, cutoff_s=1e3)
    monkeypatch.setattr(ilp.Highs, "available", lambda self: False)
    assert not isinstance(ilp._solver(None), ilp.Highs)
    cbc = solve_programme(problem, columns, cells, cutoff_s=1e3)
    assert highs.finished and cbc.finished and cbc.objective_s == pytest.approx(highs.objective_s, rel=1e-6)


def test_branch_and_bound_agrees_with_the_programme_and_stopped_early_has_a_bound_below_the_optimum() -> None:
    """On columns nothing was pruned from, so that there is something to search."""
    problem = build_problem(small("ppo", "async"), TINY["three kinds"])
    cells = build_cells(problem)
    columns = enumerate_columns(problem, cells, cutoff_s=1e6, stop=lambda: False).columns
    programme = solve_programme(problem, columns, cells, cutoff_s=1e3)
    found = branch(problem, columns, cells, cutoff_s=1e3)
    assert found.finished and found.objective_s == pytest.approx(programme.objective_s, rel=1e-9) == found.bound_s
    asked = iter(range(found.rounds))
    early = branch(problem, columns, cells, cutoff_s=1e3, stop=lambda: next(asked) >= found.rounds // 2)
    assert not early.finished and early.bound_s <= found.objective_s <= early.objective_s
    refuted = branch(problem, columns, cells, cutoff_s=found.objective_s * 0.999)
    assert refuted.finished and refuted.chosen is None and refuted.bound_s <= found.objective_s


def test_pruning_keeps_an_optimum_and_a_cutoff_below_it_is_refuted() -> None:
    problem = build_problem(small("ppo", "async"), TINY["three kinds"])
    cells = build_cells(problem)
    every = enumerate_columns(problem, cells, cutoff_s=1e6, stop=lambda: False).columns
    best = solve_programme(problem, every, cells, cutoff_s=1e3)
    cutoff = best.objective_s * (1 + 1e-7)
    fewer = promising(problem, enumerate_columns(problem, cells, cutoff_s=cutoff, stop=lambda: False).columns, cells.counts, cutoff)
    again = solve_programme(problem, fewer, cells, cutoff_s=cutoff)
    assert len(fewer) < len(every) / 2 and again.objective_s == pytest.approx(best.objective_s, rel=1e-9)
    refuted = solve_programme(problem, every, cells, cutoff_s=best.objective_s * 0.999)
    assert refuted.chosen is None and refuted.finished and refuted.bound_s <= best.objective_s


def test_out_of_time_the_best_plan_so_far_stands_without_a_proof() -> None:
    found = exact(big_job("Qwen3-4B", algorithm="ppo"), topology([(A100, 8), (L40S, 8), (L4, 8)], regions=["a", "b", "c"]), seconds=1.0)
    assert found.search.status == "feasible" and found.search.proved_bound_s is None and found.prediction.proved_bound_s is None
    assert found.prediction.iteration_time_s >= found.prediction.bound_s


def test_constraints_bind_the_optimum() -> None:
    constraints = Constraints(pin={"actor_training": ["m1"]}, fix={"actor_training": {"pp": 2}})
    found = exact(small(constraints=constraints), TINY["two kinds apart"])
    actor = found.plan.tasks["actor_training"]
    assert actor.pp == 2 and {r.split(".")[0] for r in actor.ranks} == {"m1"}
    assert found.search.status == "optimal"


def test_orders_of_a_vector_are_its_distinct_permutations() -> None:
    cells = build_cells(build_problem(small(), topology([(A100, 2), (L40S, 1), (L4, 1), (A100, 1)])))
    found, every = sequences(cells, (2, 0, 1, 1), most=120)
    assert every and sorted(found) == sorted(set(permutations((0, 0, 2, 3))))
    cells = build_cells(build_problem(small(), topology([(A100, 4), (L40S, 4), (L40S, 4)])))
    blocks, every = sequences(cells, (4, 4, 3), most=120)
    assert not every and len(blocks) == 6 and all(len(b) == 11 for b in blocks)
    alike, _ = sequences(cells, (4, 4, 4), most=120)
    assert len(alike) == 3, "of two equal machines equally filled one comes first"


def test_only_machines_that_nothing_tells_apart_are_exchanged() -> None:
    alike = build_cells(build_problem(small(), topology([(L40S, 2), (L40S, 2), (A100, 1)])))
    assert [len(o) for o in alike.orbits] == [2]
    assert alike.canonical((0, 2, 1)) == alike.canonical((2, 0, 1)) or alike.canonical((0, 2, 1))[0] == alike.canonical((2, 0, 1))[0]
    pinned = build_cells(build_problem(small(constraints=Constraints(pin={"rollout": ["m0"]})), topology([(L40S, 2), (L40S, 2), (A100, 1)])))
    apart = build_cells(build_problem(small(), topology([(L40S, 2), (L40S, 2), (A100, 1)], regions=["a", "b", "b"])))
    assert pinned.orbits == () and apart.orbits == ()
