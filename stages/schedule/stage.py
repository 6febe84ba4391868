"""The stage: reads job, topology and what is known of earlier runs; writes plan, prediction, search and a report."""

from __future__ import annotations

from typing import Any

from artifacts.calibration import Calibration
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.search import Search
from artifacts.topology import Topology
from artifacts.units import show_seconds
from stages.contract import StageContext
from stages.schedule.counting import search_space
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.pricing import price_given
from stages.schedule.solve import Enough, Solution, solve


def run(context: StageContext) -> dict[str, Any]:
    """Plan the job, or price a given plan; returns the figures a listing shows.

    Raises:
        InfeasiblePlan: no plan, or the given one breaks rules; nothing is written.
    """
    parameters = context.parameters(ScheduleParameters)
    job, topology = context.read(Job), context.read(Topology)
    calibration = context.read_optional(Calibration)
    version = str(context.input_ref("calibration")) if calibration else ""
    if parameters.price_only:
        prediction = price_given(job, topology, context.read(Plan), calibration, fidelity=parameters.fidelity, calibration_version=version)
        context.write(prediction)
        return {
            "feasible": True,
            "fidelity": prediction.fidelity,
            "iteration_time_s": prediction.iteration_time_s,
            "throughput_samples_per_s": prediction.throughput_samples_per_s,
            "violations": [],
            **({"bound_s": prediction.bound_s, "gap": prediction.gap} if prediction.bound_s else {}),
        }
    warm = [plan for _, plan in context.read_context(Plan)][:3]
    context.log(f"planning {job.name} on {len(topology.devices)} devices" + (f", starting from {len(warm)} earlier plans" if warm else ""))
    space = search_space(job, topology, calibration) if parameters.explain else []
    stop_file = context.workdir / parameters.stop_file if parameters.stop_file else None

    def progress(done: float, total: float, best: float | None) -> None:
        message = f"best so far {show_seconds(best)} an iteration" if best is not None else "nothing fits yet"
        context.progress(done, total, message, **({"best_s": best} if best is not None else {}))
        if stop_file is not None and stop_file.exists():
            raise Enough

    solution = solve(job, topology, calibration, parameters=parameters, warm=warm, calibration_version=version, on_progress=progress)
    search = solution.search.model_copy(update={"space": space})
    context.write(solution.plan)
    context.write(solution.prediction)
    context.write(search)
    _write_report(context, job, topology, solution, search)
    return summary(solution) | ({"space": [level.model_dump() for level in space]} if space else {})


def summary(solution: Solution) -> dict[str, Any]:
    """A few figures of a solution, for listings and ``--json``."""
    plan, prediction, search = solution.plan, solution.prediction, solution.search
    figures: dict[str, Any] = {
        "feasible": True,
        "iteration_time_s": prediction.iteration_time_s,
        "throughput_samples_per_s": prediction.throughput_samples_per_s,
        "bound_s": prediction.bound_s,
        "gap": prediction.gap,
        "violations": [],
        "solver": search.solver,
        "status": search.status,
        "evaluations": search.evaluations,
        "seconds": search.seconds,
        "groups": list(plan.reasons),
        "idle_devices": dict(plan.idle_devices),
    }
    if search.proved_bound_s is not None:
        figures |= {"proved_bound_s": search.proved_bound_s, "proof_scope": search.proof_scope}
    if search.front:
        figures["cost_per_sample"] = next(p.cost_per_sample for p in search.front if p.chosen)
    return figures


def _write_report(context: StageContext, job: Job, topology: Topology, solution: Solution, search: Search) -> None:
    try:
        from artifacts.views import render_schedule_report
    except ImportError as error:
        context.log(f"no report.html: {error}", level="warning")
        return
    html = render_schedule_report(job, topology, solution.plan, solution.prediction, search)
    context.write_bytes("report.html", html.encode())
