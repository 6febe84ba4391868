"""The stage: reads job, topology and what is known of earlier runs; writes plan, prediction, search and a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from artifacts.calibration import Calibration
from artifacts.errors import HetrlError
from artifacts.job import ROLE_OF_TASK, Job
from artifacts.manifest import VersionRef
from artifacts.plan import Plan
from artifacts.search import Search
from artifacts.topology import Topology
from artifacts.units import show_seconds
from stages.contract import StageContext
from stages.schedule.counting import search_space
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.pricing import price_given
from stages.schedule.solve import Enough, Solution, solve

MOST_STARTS = 3
"""Earlier plans that a search starts from."""


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
    earlier = context.read_context(Plan)
    warm, in_force = [plan for _, plan in earlier][:MOST_STARTS], _in_force(context, job, topology, earlier)
    context.log(f"planning {job.name} on {len(topology.devices)} devices" + (f", starting from {len(warm)} earlier plans" if warm else ""))
    if parameters.prefer_stable and in_force is None:
        context.log("no plan of this job on this cluster is in force: there is nothing to stay near", level="warning")
    space = search_space(job, topology, calibration) if parameters.explain else []
    stop_file = context.workdir / parameters.stop_file if parameters.stop_file else None

    def progress(done: float, total: float, best: float | None) -> None:
        message = f"best so far {show_seconds(best)} an iteration" if best is not None else "nothing fits yet"
        context.progress(done, total, message, **({"best_s": best} if best is not None else {}))
        if stop_file is not None and stop_file.exists():
            raise Enough

    solution = solve(
        job,
        topology,
        calibration,
        parameters=parameters,
        warm=warm,
        in_force=in_force,
        calibration_version=version,
        on_progress=progress,
    )
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
        "groups": [f"{g.name}: {g.reason}" for g in plan.groups if g.reason],
        "idle_devices": dict(plan.idle_devices),
    }
    if search.proved_bound_s is not None:
        figures |= {"proved_bound_s": search.proved_bound_s, "proof_scope": search.proof_scope}
    if search.moves is not None:
        figures["moves"] = search.moves.model_dump()
    if search.front:
        figures["cost_per_sample"] = next(p.cost_per_sample for p in search.front if p.chosen)
    return figures


def _in_force(context: StageContext, job: Job, topology: Topology, earlier: Sequence[tuple[VersionRef, Plan]]) -> Plan | None:
    """The newest plan of this job on this cluster. A single plan that is given for another version of the job is taken at its word, where
    its models have as many layers: the request names it, and a job may change in what moves nothing."""
    here = [plan for ref, plan in earlier if _on_this_cluster(context, ref, topology)]
    same = next((plan for plan in here if plan.job == job.identity()), None)
    if same is not None or len(earlier) != 1 or not here:
        return same
    [plan] = here
    layers = {task: job.model(ROLE_OF_TASK[task]).layers for task in job.tasks()}
    if {task: sum(s.layers) for task, s in plan.tasks.items()} != layers:
        return None
    said = "the earlier plan was made for another version of this job: what moves is counted as if its models were the same"
    context.log(said, level="warning")
    return plan


def _on_this_cluster(context: StageContext, ref: VersionRef, topology: Topology) -> bool:
    """Whether a plan was made for this cluster; one that comes without its topology is taken to be."""
    try:
        source = context.store.manifest(ref).inputs.get("topology")
        cluster = context.store.read(source, Topology).cluster if source is not None else topology.cluster
    except HetrlError:
        return False
    return (cluster.kind, cluster.name) == (topology.cluster.kind, topology.cluster.name)


def _write_report(context: StageContext, job: Job, topology: Topology, solution: Solution, search: Search) -> None:
    try:
        from artifacts.views import render_schedule_report
    except ImportError as error:
        context.log(f"no report.html: {error}", level="warning")
        return
    html = render_schedule_report(job, topology, solution.plan, solution.prediction, search)
    context.write_bytes("report.html", html.encode())
