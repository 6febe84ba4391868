"""The stage: reads job, topology and what is known of earlier runs; writes plan, prediction, search and a report."""

from __future__ import annotations

from typing import Any

from artifacts.calibration import Calibration
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from artifacts.units import show_seconds
from stages.contract import StageContext
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.solve import Solution, solve


def run(context: StageContext) -> dict[str, Any]:
    """Plan the job; returns the figures a listing shows.

    Raises:
        InfeasiblePlan: no plan; nothing is written.
    """
    parameters = context.parameters(ScheduleParameters)
    job, topology = context.read(Job), context.read(Topology)
    calibration = context.read_optional(Calibration)
    warm = [plan for _, plan in context.read_context(Plan)][:3]
    context.log(f"planning {job.name} on {len(topology.devices)} devices" + (f", starting from {len(warm)} earlier plans" if warm else ""))

    def progress(done: float, total: float, best: float | None) -> None:
        message = f"best so far {show_seconds(best)} an iteration" if best is not None else "nothing fits yet"
        context.progress(done, total, message, **({"best_s": best} if best is not None else {}))

    version = str(context.input_ref("calibration")) if calibration else ""
    solution = solve(job, topology, calibration, parameters=parameters, warm=warm, calibration_version=version, on_progress=progress)
    context.write(solution.plan)
    context.write(solution.prediction)
    context.write(solution.search)
    _write_report(context, job, topology, solution)
    return summary(solution)


def summary(solution: Solution) -> dict[str, Any]:
    """A few figures of a solution, for listings and ``--json``."""
    plan, prediction, search = solution.plan, solution.prediction, solution.search
    return {
        "feasible": True,
        "iteration_time_s": prediction.iteration_time_s,
        "throughput_samples_per_s": prediction.throughput_samples_per_s,
        "bound_s": prediction.bound_s,
        "gap": prediction.gap,
        "solver": search.solver,
        "status": search.status,
        "evaluations": search.evaluations,
        "seconds": search.seconds,
        "groups": list(plan.reasons),
        "idle_devices": dict(plan.idle_devices),
    }


def _write_report(context: StageContext, job: Job, topology: Topology, solution: Solution) -> None:
    try:
        from artifacts.views import render_schedule_report
    except ImportError as error:
        context.log(f"no report.html: {error}", level="warning")
        return
    html = render_schedule_report(job, topology, solution.plan, solution.prediction, solution.search)
    context.write_bytes("report.html", html.encode())
