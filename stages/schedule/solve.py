"""From a problem to the best plan found, or the reason why there is none. No store, no files."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from artifacts.calibration import Calibration
from artifacts.errors import InfeasiblePlan, InputError
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import FrontPoint, Search
from artifacts.topology import Topology
from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.diagnose import why_nothing_fits
from stages.schedule.documents import draft_of_plan, draft_of_whole_replicas, plan_document, prediction_document, search_document
from stages.schedule.draft import Draft
from stages.schedule.frontier import cheapest_fleets, frontier
from stages.schedule.legality import broken_rules
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.preconditions import preconditions
from stages.schedule.problem import Problem, build_problem
from stages.schedule.reasons import group_reasons, idle_reasons, limit_reason, settle_idle
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.solvers import Solver, solver_named
from stages.schedule.stable import NEAR_FRACTION, Near, moves_of, sentence
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
    """A search that ended: what it found stands in the evaluator. ``idle``: device id → why the plan leaves it out.
    ``cpu_seconds``: the processor's, all threads. ``near``: where moving was in the objective, the best plan by that."""

    evaluator: Evaluator
    report: SearchReport
    interrupted: bool
    idle: dict[str, str]
    cpu_seconds: float
    near: PlanPrice | None = None

    @property
    def price(self) -> PlanPrice | None:
        """The plan of this run; None: nothing fits."""
        return self.near or self.evaluator.best


def solve(
    job: Job,
    topology: Topology,
    calibration: Calibration | None = None,
    *,
    parameters: ScheduleParameters,
    warm: Sequence[Plan] = (),
    in_force: Plan | None = None,
    calibration_version: str = "",
    on_progress: OnProgress = lambda done, total, best: None,
) -> Solution:
    """Search for the legal plan that serves the job's objective best: the fastest, or the one whose samples cost least.

    ``warm``: plans to start from. ``in_force``: the plan that what moves is counted against; with ``prefer_stable`` the objective is the
    iteration's seconds and those of moving.

    Raises:
        InputError: the engine does not run on these devices, the solver not with this engine, prices are missing, or parameters do not go
            together.
        RunnerUnavailable: the Ray cluster whose workers are to search is not there.
        InfeasiblePlan: no plan exists, or none was found; all violations, and the cheapest mend.
    """
    _refuse(job, parameters)
    problem = build_problem(job, topology, calibration)
    broken = preconditions(problem)
    if broken:
        raise infeasible(broken)
    front: list[FrontPoint] = []
    if job.objective == "cost":
        runs = cheapest_fleets(problem, lambda part, share: _run(part, parameters, warm, None, on_progress, share=share))
        run, front = frontier(problem, runs)
    else:
        run = _run(problem, parameters, warm, in_force if parameters.prefer_stable else None, on_progress)
    price = run.price
    if price is None and run.interrupted:
        raise InfeasiblePlan("the search was stopped before it had found a plan that fits", fix="let it run longer")
    if price is None:
        raise infeasible(why_nothing_fits(run.evaluator))
    solution = _solution(problem, run, price, front, parameters=parameters, calibration_version=calibration_version)
    return solution if in_force is None else _with_moves(solution, run, price, in_force, parameters)


def _refuse(job: Job, parameters: ScheduleParameters) -> None:
    name, solver = solver_named(parameters.solver)
    if parameters.prefer_stable and job.objective == "cost":
        raise InputError("prefer_stable counts moving in seconds: it goes with objective 'throughput'", fix="leave one of the two out")
    if parameters.prefer_stable and solver.baseline:
        raise InputError(f"{name} is a baseline, whose plan is left as its method makes it", fix="give auto, sha-ea or exact")
    if parameters.workers == "ray" and not solver.seeded:
        raise InputError(
            f"{name} does the same whatever its seed: several of it at once find no more", fix="workers ray goes with auto or sha-ea"
        )


def _with_moves(solution: Solution, run: Run, price: PlanPrice, in_force: Plan, parameters: ScheduleParameters) -> Solution:
    """Say in the search and among the plan's reasons what moves."""
    horizon = parameters.horizon_iterations if parameters.prefer_stable else None
    moves = moves_of(solution.problem, in_force, solution.plan, price, horizon=horizon, fastest=run.evaluator.best or price)
    plan = solution.plan.model_copy(update={"reasons": [*solution.plan.reasons, sentence(moves, price.iteration_s)]})
    return replace(solution, plan=plan, search=solution.search.model_copy(update={"moves": moves}))


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
    optimal = proof is not None and proof.optimal and price is run.evaluator.best
    status = "interrupted" if run.interrupted else "optimal" if optimal else "feasible"
    search = search.model_copy(update={"status": status, "front": front, "cpu_seconds": round(run.cpu_seconds, 3)})
    if proof:
        search = search.model_copy(update={"proved_bound_s": proof.bound_s, "proof_scope": proof.scope})
        prediction = prediction.model_copy(update={"proved_bound_s": proof.bound_s})
    return Solution(problem=problem, plan=plan, prediction=prediction, search=search)


def job_wants_speed(problem: Problem) -> bool:
    """A proof is about seconds: under the cost objective it is one of a part of the fleet only."""
    return problem.job.objective == "throughput"


def _run(
    problem: Problem,
    parameters: ScheduleParameters,
    warm: Sequence[Plan],
    stay: Plan | None,
    on_progress: OnProgress,
    *,
    share: float = 1.0,
) -> Run:
    """One search with a share of the budget; stopped early where ``on_progress`` says so. ``stay``: what moving is counted from."""
    name, solver = solver_named(parameters.solver)
    seconds = None if parameters.seconds is None else parameters.seconds * share
    budget = Budget(evaluations=max(1, int(parameters.budget(devices=problem.fleet.size) * share)), seconds=seconds)
    solver.ready(problem)
    evaluator = Evaluator(
        evenly(problem) if "balancing" in parameters.without else solver.sees(problem),
        budget if stay is None else _part(budget, 1 - NEAR_FRACTION),
        on_progress=on_progress,
        without=frozenset(parameters.without),
    )
    starts = _starts(evaluator.problem, warm)
    near = Near(evaluator, stay, horizon=parameters.horizon_iterations) if stay else None
    report, interrupted, began = SearchReport(arms=[], operators={}), False, time.process_time()
    try:
        report = _search(name, solver, parameters)(evaluator, parameters.seed, starts)
        evaluator.budget = budget
        if near is not None and stay is not None:
            report.operators.update(near.search(_starts(evaluator.problem, [stay]), parameters.seed))
    except Enough:
        interrupted = True
    cpu_seconds = time.process_time() - began + report.cpu_seconds
    evaluator.on_progress = lambda done, total, best: None
    if interrupted or solver.baseline:
        reason = "not tried any more: the search was stopped" if interrupted else f"left out by the method of {name}"
        idle = _unused(evaluator, evaluator.best, reason)
    else:
        reason = "idle in the plan in force, which stays"
        idle = settle_idle(evaluator)
    if near is None:
        return Run(evaluator, report, interrupted, idle, cpu_seconds)
    near.judge_fastest()
    if near.price is not None and near.price is not evaluator.best:
        idle = _unused(evaluator, near.price, reason)
        if near.draft is not None and not interrupted:
            idle = idle_reasons(evaluator, near.draft, near.price)
    return Run(evaluator, report, interrupted, idle, cpu_seconds, near.price)


def _part(budget: Budget, share: float) -> Budget:
    seconds = None if budget.seconds is None else budget.seconds * share
    return Budget(evaluations=max(1, int(budget.evaluations * share)), seconds=seconds)


def _search(name: str, solver: Solver, parameters: ScheduleParameters) -> Callable[[Evaluator, int, Sequence[Draft]], SearchReport]:
    """The solver here, or one of it on every worker of a Ray cluster."""
    if parameters.workers == "local":
        return solver.search
    from stages.schedule.workers.ray_search import ray_search

    return partial(ray_search, name, parameters.ray_address, parameters.ray_workers)


def _starts(problem: Problem, plans: Sequence[Plan]) -> list[Draft]:
    """Earlier plans as they are on this fleet: with as many replicas as devices are left for, and with those that are whole in place."""
    made = [d for p in plans for d in (draft_of_plan(problem, p), draft_of_whole_replicas(problem, p)) if d is not None]
    return list(dict.fromkeys(made))


def _unused(evaluator: Evaluator, price: PlanPrice | None, reason: str) -> dict[str, str]:
    """Devices a plan leaves out, with what excludes them, or the reason given."""
    if price is None:
        return {}
    problem = evaluator.problem
    used = {int(d) for g in price.groups for d in g.memory.devices}
    if len(used) >= problem.most_devices:
        reason = limit_reason(problem)
    return {d.id: problem.excluded.get(d.id, reason) for i, d in enumerate(problem.fleet.devices) if i not in used}
