"""The plan as Markdown: who runs where, and why."""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.topology import Topology
from artifacts.units import show_seconds
from artifacts.views import plan_tables
from artifacts.views.figures import plan_figures
from artifacts.views.tables import Table
from artifacts.views.text import markdown


def plan_markdown(job: Job, topology: Topology, plan: Plan, prediction: Prediction) -> str:
    """Headline figures, groups with devices and reasons, layout and time by task.

    Strings of the documents appear as text, never as markup.
    """
    parts = [f"# Plan for {markdown(job.name)}", ""]
    for figure in plan_figures(topology, plan, prediction, None):
        parts.append(f"- **{markdown(figure.label)}:** {markdown(figure.value)}" + (f" ({markdown(figure.note)})" if figure.note else ""))
    parts += ["", "## Who runs where", "", *table_lines(plan_tables.group_table(topology, plan))]
    parts += ["", "## Layout of each task", "", *table_lines(_with_times(plan, prediction))]
    idle = plan_tables.idle_reasons(plan)
    if idle:
        parts += ["", "## Left idle", "", *(f"- {markdown(devices)}: {markdown(reason)}" for devices, reason in idle)]
    if plan.reasons:
        parts += ["", "## Why this plan", "", *(f"- {markdown(reason)}" for reason in plan.reasons)]
    return "\n".join(parts) + "\n"


def _with_times(plan: Plan, prediction: Prediction) -> Table:
    layout = plan_tables.strategy_table(plan)
    times = [show_seconds(prediction.tasks[t].time_s) if t in prediction.tasks else "–" for t in plan.tasks]
    return Table((*layout.columns, "Predicted"), [(*row, time) for row, time in zip(layout.rows, times, strict=True)])


def table_lines(table: Table) -> list[str]:
    return [_row(table.columns), _row(["---"] * len(table.columns), escape=False), *(_row(row) for row in table.rows)]


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(markdown(c) if escape else c for c in cells) + " |"
