"""Predicted against measured: a row a task and device class, the whole iteration, and what most of the error comes from."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from artifacts.errors import InputError
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.topology import Topology
from artifacts.units import show_seconds
from artifacts.validation import Row, TrendPoint, Validation
from stages.validate.measured import Measured, Sample

OTHER = "other"
"""Row of what an iteration spends under none of the predicted names; only where the prediction has an overhead."""
OVERHEAD_NAMES = frozenset({"other", "overhead"})
PLACED_WITH = {"actor_log_prob": ("actor_training",), "weight_update": ("actor_training", "rollout")}
"""What is no task of the plan and still runs on the devices of tasks."""


@dataclass(frozen=True)
class Comparison:
    """Rows and what could not be compared. ``classes``: row name → device classes it ran on, sorted."""

    rows: list[Row]
    whole: Row
    classes: dict[str, list[str]]
    predicted_s: dict[str, float]
    beside: Sample | None
    suspect: str
    notes: list[str]


def compare(topology: Topology, plan: Plan, prediction: Prediction, measured: Measured) -> Comparison:
    """Compare by task. A task that runs on several device classes is one row, its class is theirs joined by ``+``:
    neither the prediction nor the log says what each class alone would have taken."""
    predicted: dict[str, float] = {name: t.time_s for name, t in prediction.tasks.items()}
    predicted |= {name: s for name, s in prediction.other_s.items() if name not in OVERHEAD_NAMES}
    overhead_s = sum(s for name, s in prediction.other_s.items() if name in OVERHEAD_NAMES)
    classes = {name: device_classes(name, topology, plan) for name in predicted}
    notes: list[str] = []
    rows: list[Row] = []
    differences: dict[str, float] = {}
    for name, seconds in predicted.items():
        found = measured.tasks.get(name)
        if found is None:
            if seconds > 0:
                notes.append(f"{name} is predicted to take {show_seconds(seconds)} and does not appear in the log")
                differences[name] = seconds
        elif found.median_s == 0:
            notes.append(f"{name} measured 0 s ({show_seconds(seconds)} predicted): no relative error")
            differences[name] = seconds
        else:
            rows.append(row(name, "+".join(classes[name]), seconds, found, prediction.paper_s.get(name)))
            differences[name] = seconds - found.median_s
    beside = measured.beside(predicted)
    if overhead_s > 0 and beside and beside.median_s > 0:
        rows.append(row(OTHER, "", overhead_s, beside))
        differences[OTHER] = overhead_s - beside.median_s
    elif beside and beside.median_s > 0:
        unknown = {k: s.median_s for k, s in measured.tasks.items() if k not in predicted}
        differences |= {k: -s for k, s in unknown.items()}
        listed = ", ".join(f"{k} {show_seconds(s)}" for k, s in sorted(unknown.items(), key=lambda kv: -kv[1]))
        notes.append(f"measured beside the predicted tasks, and not predicted: {listed}")
    elif overhead_s > 0:
        notes.append(f"an overhead of {show_seconds(overhead_s)} is predicted and none was measured")
        differences[OTHER] = overhead_s
    if not rows:
        raise InputError(
            f"prediction and log have no task in common: predicted {', '.join(predicted) or 'nothing'}, "
            f"measured {', '.join(measured.tasks) or 'nothing'}",
            fix="validate a run with the prediction of its own plan",
        )
    whole = row("iteration", "all", prediction.iteration_time_s, measured.whole, prediction.paper_s.get("iteration"))
    return Comparison(
        rows=rows,
        whole=whole,
        classes=classes,
        predicted_s=predicted,
        beside=beside,
        suspect=suspect(differences, whole.predicted_s - whole.measured_s),
        notes=notes,
    )


def row(task: str, device_class: str, predicted_s: float, found: Sample, paper_s: float | None = None) -> Row:
    return Row(
        task=task,
        device_class=device_class,
        predicted_s=predicted_s,
        measured_s=found.median_s,
        measured_spread=found.spread,
        iterations=found.count,
        error=(predicted_s - found.median_s) / found.median_s,
        paper_s=paper_s,
    )


def suspect(differences: dict[str, float], whole_s: float) -> str:
    """The name that adds most seconds (predicted − measured) to an iteration's error of ``whole_s``, in its direction; "" if none does."""
    sign = -1.0 if whole_s < 0 else 1.0
    candidates = (
        {name: d * sign for name, d in differences.items() if d * sign > 0} if whole_s else {n: abs(d) for n, d in differences.items() if d}
    )
    return max(candidates, key=lambda n: (candidates[n], n), default="")


def device_classes(name: str, topology: Topology, plan: Plan) -> list[str]:
    """Classes of the devices a task (or what is placed with tasks) runs on, sorted; empty where it runs on no devices of its own."""
    tasks = [t for t in PLACED_WITH.get(name, (name,)) if t in plan.tasks]
    of = {d.id: d.device_class for d in topology.devices}
    return sorted({of[device] for t in tasks for device in plan.tasks[t].ranks})


def validation(
    comparison: Comparison, plan: Plan, *, bound: float, trend: list[TrendPoint], notes: list[str], simulated: bool
) -> Validation:
    """The document: off when the iteration's error passes the bound, in either direction."""
    return Validation(
        plan=plan.identity(),
        rows=comparison.rows,
        iteration=comparison.whole,
        median_abs_error=median(abs(r.error) for r in comparison.rows),
        trend=trend,
        bound=bound,
        verdict="off" if abs(comparison.whole.error) > bound else "ok",
        suspect=comparison.suspect,
        notes=[*comparison.notes, *notes],
        simulated=simulated,
    )
