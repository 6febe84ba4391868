"""``report.html``: one self-contained page for a plan, and one for a run. No script, nothing fetched, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from artifacts.deployment import Deployment
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.throughput import Iteration, Throughput
from artifacts.topology import Topology
from artifacts.units import show_seconds
from artifacts.validation import TrendPoint, Validation
from artifacts.views import plan_tables, search_tables, sources
from artifacts.views.charts import front_chart, search_chart, training_charts, trend_chart
from artifacts.views.comparison import comparison_bars
from artifacts.views.figures import plan_figures, run_figures
from artifacts.views.memory import SHOW_EACH_UP_TO, memory_bars
from artifacts.views.placement import placement_map
from artifacts.views.tables import error_table
from artifacts.views.text import clean, percent, plural, tally, task_title
from artifacts.views.timeline import measured_spans, predicted_spans, timeline


def render_schedule_report(
    job: Job, topology: Topology, plan: Plan, prediction: Prediction, search: Search | None, *, lineage: Mapping[str, str] | None = None
) -> str:
    """The page beside a plan. ``lineage``: artifact → version it was read from, shown as it is."""
    context = _plan_context(job, topology, plan, prediction, search)
    context.update(
        title=f"Plan for {clean(job.name)}",
        timeline=timeline(plan, [("predicted", predicted_spans(plan, prediction), prediction.iteration_time_s)]),
        identities=sources.identity_table(job, topology, plan, prediction, deployment=None, throughput=None, lineage=lineage or {}),
    )
    return _page(context)


def render_run_report(
    job: Job,
    topology: Topology,
    plan: Plan,
    prediction: Prediction,
    search: Search | None,
    deployment: Deployment,
    throughput: Throughput,
    validation: Validation,
    history: Sequence[TrendPoint] = (),
    *,
    lineage: Mapping[str, str] | None = None,
) -> str:
    """The page of a run: how it trained, and predicted against measured, above everything the plan's page has.

    ``history`` are the runs before this one, oldest first; empty: the trend the validation holds.
    """
    whole = validation.iteration
    now = TrendPoint(version="this run", iteration_error=whole.error, median_abs_error=validation.median_abs_error)
    context = _plan_context(job, topology, plan, prediction, search)
    measured = medians_by_task(throughput.iterations) | {r.task: r.measured_s for r in validation.rows}
    sections = [
        ("predicted", predicted_spans(plan, prediction), prediction.iteration_time_s),
        ("measured", measured_spans(plan, prediction, measured), whole.measured_s),
    ]
    if throughput.header.simulated:
        context["banners"].append("The measurements of this page come from the simulator, not from devices.")
    context.update(
        title=f"Run of {clean(job.name)}",
        verdict=_verdict(validation),
        verdict_good=validation.verdict == "ok",
        run_figures=run_figures(throughput, validation),
        training=training_charts(throughput, prediction),
        comparison=comparison_bars(validation),
        errors=error_table(validation),
        suspect=task_title(validation.suspect),
        median_error=percent(validation.median_abs_error),
        notes=[clean(n, limit=600) for n in validation.notes],
        trend=trend_chart([*(history or validation.trend), now], bound=validation.bound),
        timeline=timeline(plan, sections),
        ranks=sources.rank_table(deployment) if deployment.ranks else None,
        identities=sources.identity_table(
            job, topology, plan, prediction, deployment=deployment, throughput=throughput, lineage=lineage or {}
        ),
    )
    return _page(context)


def medians_by_task(iterations: Sequence[Iteration]) -> dict[str, float]:
    """Median seconds by key of ``by_task_s``, without the first iteration (warm-up) where there are more."""
    counted = iterations[1:] or iterations
    keys = list(dict.fromkeys(k for i in counted for k in i.by_task_s))
    return {k: median(i.by_task_s[k] for i in counted if k in i.by_task_s) for k in keys}


def _plan_context(job: Job, topology: Topology, plan: Plan, prediction: Prediction, search: Search | None) -> dict[str, Any]:
    banners = []
    if topology.cluster.reconstructed:
        banners.append("This cluster is reconstructed from published ranges; nothing of it was measured.")
    return {
        "lead": _lead(job, topology),
        "banners": banners,
        "verdict": "",
        "run_figures": [],
        "plan_figures": plan_figures(topology, plan, prediction, search),
        "placement": placement_map(topology, plan),
        "groups": plan_tables.group_table(topology, plan),
        "idle": plan_tables.idle_reasons(plan),
        "unreachable": [(clean(u.machine), clean(u.reason)) for u in topology.unreachable],
        "strategies": plan_tables.strategy_table(plan),
        "ranks": None,
        "times": plan_tables.time_table(prediction),
        "memory": memory_bars(topology, plan, prediction) if prediction.memory else None,
        "memory_aggregated": len(prediction.memory) > SHOW_EACH_UP_TO,
        "search": _search_line(search) if search else "",
        "search_chart": search_chart(search, prediction) if search else None,
        "arms": search_tables.arm_table(search) if search else None,
        "arm_count": len(search.arms) if search else 0,
        "operators": search_tables.operator_table(search) if search else None,
        "front_chart": front_chart(search) if search else None,
        "front": search_tables.front_table(search) if search and search.front else None,
        "space": search_tables.space_table(search) if search and search.space else None,
        "reasons": [clean(r, limit=600) for r in plan.reasons],
        "classes": sources.class_table(topology),
        "links": sources.link_table(topology),
        "provenance": sources.provenance_table(prediction),
        "sensitivity": plan_tables.sensitivity_table(prediction),
    }


def _page(context: dict[str, Any]) -> str:
    sections = [
        ("training", "Training", context["run_figures"]),
        ("errors", "Predicted against measured", context["run_figures"]),
        ("placement", "Who runs where", True),
        ("timeline", "Timeline", True),
        ("memory", "Memory", context["memory"]),
        ("search", "Search", context["search"]),
        ("reasons", "Why this plan", context["reasons"]),
        ("sensitivity", "What matters most", context["sensitivity"].rows),
        ("provenance", "Where the numbers come from", True),
    ]
    return _template().render(**context, contents=[(anchor, name) for anchor, name, there in sections if there])


@cache
def _template() -> Template:
    folder = Path(__file__).parent
    return Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined).get_template("report.html.j2")


def _lead(job: Job, topology: Topology) -> str:
    model = job.model("actor").name
    regions = {m.region for m in topology.machines}
    where = (
        f"{plural(len(topology.machines), 'machine')} in {plural(len(regions), 'region')}"
        if regions != {""}
        else plural(len(topology.machines), "machine")
    )
    batch = job.batch
    return (
        f"{job.algorithm.upper()}, {'synchronous' if job.mode == 'sync' else f'asynchronous (staleness {job.staleness})'}, {clean(model)}; "
        f"{batch.prompts:,} prompts × {batch.responses_per_prompt} responses an iteration; "
        f"cluster {clean(topology.cluster.name)}: {where}, {tally(d.device_class for d in topology.devices)}."
    )


def _search_line(search: Search) -> str:
    return (
        f"Solver {clean(search.solver)}, seed {search.seed}: {search.evaluations:,} plans evaluated in {show_seconds(search.seconds)}; "
        f"ended {clean(search.status)}.{_proof(search)}"
    )


def _proof(search: Search) -> str:
    if search.proved_bound_s is None:
        return ""
    return f" Proved: {show_seconds(search.proved_bound_s)} is beaten by no plan among {clean(search.proof_scope, limit=400)}."


def _verdict(validation: Validation) -> str:
    whole = validation.iteration
    figures = (
        f"{show_seconds(whole.predicted_s)} predicted, {show_seconds(whole.measured_s)} measured ({percent(whole.error, signed=True)})"
    )
    bound = f"the bound of ±{percent(validation.bound)}"
    if validation.verdict == "ok":
        return f"The prediction holds: {figures}, within {bound}."
    return f"The prediction is off: {figures}, beyond {bound}. Most of it: {task_title(validation.suspect) or 'unknown'}."
