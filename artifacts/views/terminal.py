"""The summary at the end of a run, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from artifacts.units import show_seconds
from artifacts.validation import Validation
from artifacts.views.comparison import comparison_rows
from artifacts.views.figures import first_and_last
from artifacts.views.palette import group_styles
from artifacts.views.plan_tables import idle_reasons
from artifacts.views.text import clean, number, percent, plural, tally, task_title

MOST_REASONS = 6


def terminal_summary(
    topology: Topology,
    plan: Plan,
    prediction: Prediction,
    *,
    throughput: Throughput | None = None,
    validation: Validation | None = None,
    look: Mapping[str, str] | None = None,
) -> Lines:
    """A rich renderable: the plan in a few lines, reward and loss, predicted against measured, the verdict, where to look.

    ``look``: what → where (a path or an address). Documents of stages that did not run are left out.
    """
    parts: list[Text | Table] = [*_plan_lines(topology, plan, prediction)]
    if throughput and throughput.iterations:
        parts.append(_training_line(throughput))
    if validation:
        parts += [Text(""), _comparison(validation), *_verdict(validation)]
    if look:
        parts += [Text(""), *(Text.assemble((f"{clean(name)}: ", "bold"), clean(where, limit=1000)) for name, where in look.items())]
    return Lines(*parts)


def _plan_lines(topology: Topology, plan: Plan, prediction: Prediction) -> list[Text]:
    styles, class_of = group_styles(plan), {d.id: d.device_class for d in topology.devices}
    lines = []
    for group in plan.groups:
        tasks = ", ".join(f"{task_title(t)} {plan.tasks[t].dp}×{plan.tasks[t].pp}×{plan.tasks[t].tp}" for t in group.tasks)
        kinds = tally(class_of.get(d, "unknown") for d in group.devices)
        lines.append(Text.assemble((f"{styles[group.name].letter}  ", "bold"), f"{tasks}  on {kinds}"))
    idle = len(topology.devices) - sum(len(g.devices) for g in plan.groups)
    idle_text = f"{plural(idle, 'device')} idle" if idle else "no device idle"
    figures = f"predicted iteration {show_seconds(prediction.iteration_time_s)}, {number(prediction.throughput_samples_per_s)} samples/s"
    lines.append(Text(f"dp×pp×tp; {idle_text}; {figures}", style="dim"))
    return lines + [Text(f"idle  {devices}: {reason}", style="dim") for devices, reason in idle_reasons(plan)[:MOST_REASONS]]


def _training_line(throughput: Throughput) -> Text:
    steps = throughput.iterations
    parts = [f"{len(steps)} iteration{'s' if len(steps) > 1 else ''}"]
    for label, attribute in (("reward", "reward_mean"), ("loss", "loss")):
        ends = first_and_last(steps, attribute)
        if ends:
            parts.append(f"{label} {number(ends[0])} → {number(ends[1])}")
    parts.append(f"{number(sum(s.samples_per_s for s in steps) / len(steps))} samples/s")
    return Text(", ".join(parts) + (" (simulated)" if throughput.header.simulated else ""))


def _comparison(validation: Validation) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (("task", "left"), ("class", "left"), ("predicted", "right"), ("measured", "right"), ("error", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for row in comparison_rows(validation):
        whole = row is validation.iteration
        table.add_row(
            Text("whole iteration" if whole else task_title(row.task)),
            Text("" if whole else clean(row.device_class)),
            show_seconds(row.predicted_s),
            show_seconds(row.measured_s),
            Text(percent(row.error, signed=True), style="red" if abs(row.error) > validation.bound else ""),
            style="bold" if whole else "",
        )
    return table


def _verdict(validation: Validation) -> list[Text]:
    good = validation.verdict == "ok"
    error = percent(validation.iteration.error, signed=True)
    text = f"prediction {'holds' if good else 'is off'}: {error}, bound ±{percent(validation.bound)}"
    if not good and validation.suspect:
        text += f"; most of it: {task_title(validation.suspect)}"
    return [Text(text, style="green" if good else "bold red"), *(Text(f"note: {clean(n)}", style="dim") for n in validation.notes)]
