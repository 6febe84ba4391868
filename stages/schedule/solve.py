"""From a problem to the best plan found, or the reason why there is none. No store, no files: what ``hetrl schedule`` also calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from artifacts.calibration import Calibration
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.topology import Topology
from stages.schedule.diagnose import why_nothing_fits
from stages.schedule.documents import draft_of_plan, plan_document, prediction_document, search_document
from stages.schedule.legality import broken_rules
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.preconditions import preconditions
from stages.schedule.problem import Problem, build_problem
from stages.schedule.reasons import group_reasons, settle_idle
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.nested_halving import SearchReport, sha_ea
from stages.schedule.search.random_search import random_search
from stages.schedule.violations import infeasible

SOLVERS = {"auto": "sha-ea"}


@dataclass(frozen=True)
class Solution:
    """A plan with its price and its history."""

    problem: Problem
    plan: Plan
    prediction: Prediction
    search: Search


def solve(
    job: Job,
    topology: Topology,
    calibration: Calibration | None = None,
    *,
    parameters: ScheduleParameters,
    warm: Sequence[Plan] = (),
    calibration_version: str = "",
    on_progress: Callable[[float, float, float | None], None] = lambda done, total, best: None,
) -> Solution:
    """Search for the fastest legal plan.

    Raises:
        InputError: the engine does not run on these devices.
        InfeasiblePlan: no plan exists, or none was found; all violations, and the cheapest mend.
    """
    problem = build_problem(job, topology, calibration)
    broken = preconditions(problem)
    if broken:
        raise infeasible(broken)
    evaluator = Evaluator(problem, Budget(evaluations=parameters.evaluations, seconds=parameters.seconds), on_progress=on_progress)
    solver = SOLVERS.get(parameters.solver, parameters.solver)
    report = _search(evaluator, solver, parameters.seed, warm)
    idle = settle_idle(evaluator)
    price = evaluator.best
    if price is None:
        raise infeasible(why_nothing_fits(evaluator))
    plan = plan_document(problem, price, solver=solver, idle=idle, reasons=group_reasons(problem, price))
    wrong = broken_rules(problem, plan)
    if wrong:
        raise AssertionError(f"the search made a plan that breaks {wrong[0].rule}: {wrong[0].message}")
    prediction = prediction_document(problem, plan, price, calibration=calibration_version)
    return Solution(
        problem=problem, plan=plan, prediction=prediction, search=search_document(evaluator, report, solver=solver, seed=parameters.seed)
    )


def _search(evaluator: Evaluator, solver: str, seed: int, warm: Sequence[Plan]) -> SearchReport:
    if solver == "random":
        return random_search(evaluator, seed=seed)
    starts = [d for d in (draft_of_plan(evaluator.problem, p) for p in warm) if d is not None]
    return sha_ea(evaluator, seed=seed, warm=starts)
