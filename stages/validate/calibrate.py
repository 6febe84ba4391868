"""Fitting the calibration: a factor a task and device class, measured over uncalibrated prediction, over all runs so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from artifacts.calibration import Calibration, Factor, calls_of
from artifacts.prediction import Prediction
from artifacts.topology import Topology
from artifacts.validation import Row
from stages.validate.errors import OTHER, Comparison

MIN_ITERATIONS = 2
PRIOR = 0.25
"""Evidence for a factor of 1 before anything was seen: a model off by e² either way is one standard deviation off. On GPUs that is far;
toy models on a CPU are farther."""
SCATTER, SHARED_SCATTER = 0.1, 0.2
"""Standard deviation of a run's log(measured / predicted) about its class's factor, however many iterations it had: plans differ, and so
do days. Larger where the task ran on several classes, whose common ratio says less of each: a run that sees a class alone outweighs it."""


@dataclass(frozen=True)
class Fit:
    """What was learned, None if nothing could be; and what a person should know about it."""

    calibration: Calibration | None
    notes: list[str] = field(default_factory=list)


def fit(
    comparison: Comparison,
    prediction: Prediction,
    used: Calibration | None,
    *,
    topology: Topology,
    used_names: tuple[str, ...],
    max_factor: float,
) -> Fit:
    """Factors that bring the prediction to the measured medians, as far as all runs so far agree.

    A run whose prediction was made with factor f₀ and is off by the ratio r = measured / predicted says f₀·r. The new factor is the mean
    of what the runs say, of their logarithms, each by its evidence (inverse variance: the scatter within the run and between runs),
    together with a prior at 1 (on a class not seen before, at what its like showed); so the first run moves a factor nearly to what it
    says, one of few, scattered iterations less far. A task on several classes gives each of them the same r: the log cannot tell them
    apart. What this run did not see keeps what was learned before.

    Args:
        used: the calibration the prediction was made with; None if it is not at hand.
        used_names: the names (version, stage@version) under which the prediction may mention ``used``.
        max_factor: factors stay within 1/max_factor … max_factor.
    """
    if prediction.calibration and prediction.calibration not in used_names:
        return Fit(
            None,
            [f"no calibration fitted: the prediction was made with calibration {prediction.calibration}, which is not among the inputs"],
        )
    before = used if prediction.calibration else None
    notes: list[str] = []
    factors: dict[tuple[str, str], Factor] = {}
    for row in comparison.rows:
        if row.task == OTHER:
            continue
        why_not = _refusal(row, comparison)
        if why_not:
            notes.append(why_not)
            continue
        for name in comparison.classes[row.task]:
            known = before.known(task=row.task, device_class=name) if before else None
            predicted_with = before.factor(task=row.task, device_class=name, alike=topology.classes_alike(name)) if before else 1.0
            shared_row = len(comparison.classes[row.task]) > 1
            factors[row.task, name] = _factor(row, name, shared_row, known, predicted_with, max_factor, notes)
    if not factors:
        return Fit(None, [*notes, "no calibration fitted"])
    carried = [f for f in (before.factors if before else []) if (f.task, f.device_class) not in factors]
    shared = sorted({r.task for r in comparison.rows if len(comparison.classes.get(r.task, [])) > 1})
    if shared:
        notes.append(f"one factor for all device classes of {', '.join(shared)}: the log cannot tell them apart")
    earlier = before.runs if before else 0
    beside, tasks = comparison.beside.median_s if comparison.beside else 0.0, len(prediction.tasks)
    calibration = Calibration(
        factors=[*factors.values(), *carried],
        overhead_s=(earlier * (before.overhead(tasks=tasks) if before else 0.0) + beside) / (earlier + 1),
        overhead_calls=calls_of(tasks),
        runs=earlier + 1,
        notes=notes,
    )
    return Fit(calibration, notes)


def _refusal(row: Row, comparison: Comparison) -> str:
    if row.iterations < MIN_ITERATIONS:
        return f"{row.task}: no factor from {row.iterations} counted iteration, at least {MIN_ITERATIONS} are needed"
    if row.predicted_s <= 0:
        return f"{row.task}: no factor, because 0 s are predicted"
    if not comparison.classes.get(row.task):
        return f"{row.task}: no factor, because it runs on no devices of its own"
    return ""


def _factor(
    row: Row, device_class: str, shared: bool, known: Factor | None, predicted_with: float, max_factor: float, notes: list[str]
) -> Factor:
    scatter = SHARED_SCATTER if shared else SCATTER
    evidence = 1.0 / (scatter**2 + row.measured_spread**2 / row.iterations)
    held = PRIOR + (known.evidence if known else 0.0)
    exact = predicted_with * (row.measured_s / row.predicted_s) ** (evidence / (held + evidence))
    value = min(max(exact, 1 / max_factor), max_factor)
    if value != exact:
        notes.append(
            f"{row.task} on {device_class}: factor {exact:.3g} is beyond {1 / max_factor:g} … {max_factor:g} and was held at {value:.3g}"
        )
    return Factor(
        device_class=device_class,
        task=row.task,
        factor=value,
        observations=row.iterations + (known.observations if known else 0),
        spread=row.measured_spread,
        evidence=evidence + (known.evidence if known else 0.0),
    )
