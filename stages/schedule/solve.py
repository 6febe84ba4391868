"""From a problem to the best plan found, or the reason why there is none. No store, no files."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from artifacts.calibration import Calibration
from artifacts.errors import InfeasiblePlan
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import FrontPoint, Search
from artifacts.topology import Topology
from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.diagnose import why_nothing_fits
from stages.schedule.documents import draft_of_plan, plan_document, prediction_document, search_document
from stages.schedule.frontier import cheapest_fleets, frontier
from stages.schedule.legality import broken_rules
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.preconditions import preconditions
from stages.schedule.problem import Problem, build_problem
from stages.schedule.reasons import group_reasons, limit_reason, settle_idle
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.solvers import solver_named
from stages.schedule.variant import evenly
from stages.schedule.violations import infeasible

OnProgress = Callable[[float, float, float | None], None]


class Enough(Exception):
    """Raised out of ``on_progress`` to end a search: the best plan so far is the result."""


@dataclass(frozen=True)
class Solution:
    """A plan with its price and its history."""

    problem: Problem
    plan: Plan
    prediction: Prediction
    search: Search


@dataclass(frozen=True, eq=False)
class Run:
    """A search that ended: what it found stands in the evaluator. ``idle``: device id → why the best plan leaves it out.
    ``cpu_seconds``: the processor's, all threads."""

    evaluator: Evaluator
    report: SearchReport
    interrupted: bool
    idle: dict[str, str]
    cpu_seconds: float


def solve(
    job: Job,
    topology: Topology,
    calibration: Calibration | None = None,
    *,
    parameters: ScheduleParameters,
    warm: Sequence[Plan] = (),
    calibration_version: str = "",
    on_progress: OnProgress = lambda done, total, best: None,
) -> Solution:
    """Search for the legal plan that serves the job's objective best: the fastest, or the one whose samples cost least.

    Raises:
        InputError: the engine does not run on these devices, the solver not with this engine, or prices are missing.
        InfeasiblePlan: no plan exists, or none was found; all violations, and the cheapest mend.
    """
    problem = build_problem(job, topology, calibration)
    broken = preconditions(problem)
    if broken:
        raise infeasible(broken)
    front: list[FrontPoint] = []
    if job.objective == "cost":
        runs = cheapest_fleets(problem, lambda part, share: _run(part, parameters, warm, on_progress, share=share))
        run, front = frontier(problem, runs)
    else:
        run = _run(problem, parameters, warm, on_progress)
    price = run.evaluator.best
    if price is None and run.interrupted:
        raise InfeasiblePlan("the search was stopped before it had found a plan that fits", fix="let it run longer")
    if price is None:
        raise infeasible(why_nothing_fits(run.evaluator))
    return _solution(problem, run, price, front, parameters=parameters, calibration_version=calibration_version)


def _solution(
    problem: Problem, run: Run, price: PlanPrice, front: list[FrontPoint], *, parameters: ScheduleParameters, calibration_version: str
) -> Solution:
    name, _ = solver_named(parameters.solver)
    plan = plan_document(problem, price, solver=name, idle=run.idle, reasons=group_reasons(problem, price))
    wrong = broken_rules(problem, plan)
    if wrong:
        raise AssertionError(f"the search made a plan that breaks {wrong[0].rule}: {wrong[0].message}")
    prediction = prediction_document(problem, plan, price, calibration=calibration_version)
    search = search_document(run.evaluator, run.report, solver=name, seed=parameters.seed)
    proof = run.report.proof if job_wants_speed(problem) else None
    status = "interrupted" if run.interrupted else "optimal" if proof and proof.optimal else "feasible"
    search = search.model_copy(update={"status": status, "front": front, "cpu_seconds": round(run.cpu_seconds, 3)})
    if proof:
        search = search.model_copy(update={"proved_bound_s": proof.bound_s, "proof_scope": proof.scope})
        prediction = prediction.model_copy(update={"proved_bound_s": proof.bound_s})
    return Solution(problem=problem, plan=plan, prediction=prediction, search=search)


def job_wants_speed(problem: Problem) -> bool:
    """A proof is about seconds: under the cost objective it is one of a part of the fleet only."""
    return problem.job.objective == "throughput"


def _run(problem: Problem, parameters: ScheduleParameters, warm: Sequence[Plan], on_progress: OnProgress, *, share: float = 1.0) -> Run:
    """One search with a share of the budget; stopped early where ``on_progress`` says so."""
    name, solver = solver_named(parameters.solver)
    seconds = None if parameters.seconds is None else parameters.seconds * share
    evaluations = max(1, int(parameters.evaluations * share))
    solver.ready(problem)
    evaluator = Evaluator(
        evenly(problem) if "balancing" in parameters.without else solver.sees(problem),
        Budget(evaluations=evaluations, seconds=seconds),
        on_progress=on_progress,
        without=frozenset(parameters.without),
    )
    starts = [d for d in (draft_of_plan(evaluator.problem, p) for p in warm) if d is not None]
    interrupted, began = False, time.process_time()
    try:
        report = solver.search(evaluator, parameters.seed, starts)
    except Enough:
        report, interrupted = SearchReport(arms=[], operators={}), True
    cpu_seconds = time.process_time() - began
    evaluator.on_progress = lambda done, total, best: None
    if interrupted or solver.baseline:
        idle = _unused(evaluator, "not tried any more: the search was stopped" if interrupted else f"left out by the method of {name}")
    else:
        idle = settle_idle(evaluator)
    return Run(evaluator=evaluator, report=report, interrupted=interrupted, idle=idle, cpu_seconds=cpu_seconds)


def _unused(evaluator: Evaluator, reason: str) -> dict[str, str]:
    """Devices the best plan leaves out, with what excludes them, or the reason given."""
    if evaluator.best is None:
        return {}
    problem = evaluator.problem
    used = {int(d) for g in evaluator.best.groups for d in g.memory.devices}
    if len(used) >= problem.most_devices:
        reason = limit_reason(problem)
    return {d.id: problem.excluded.get(d.id, reason) for i, d in enumerate(problem.fleet.devices) if i not in used}
