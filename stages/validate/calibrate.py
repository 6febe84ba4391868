"""Fitting the calibration: a factor a task and device class, measured over uncalibrated prediction."""

from __future__ import annotations

from dataclasses import dataclass, field

from artifacts.calibration import Calibration, Factor
from artifacts.prediction import Prediction
from artifacts.validation import Row
from stages.validate.errors import OTHER, Comparison

MIN_ITERATIONS = 2


@dataclass(frozen=True)
class Fit:
    """What was learned, None if nothing could be; and what a person should know about it."""

    calibration: Calibration | None
    notes: list[str] = field(default_factory=list)


def fit(comparison: Comparison, prediction: Prediction, used: Calibration | None, *, used_names: tuple[str, ...], max_factor: float) -> Fit:
    """Factors that make the prediction meet the measured medians.

    A prediction made with factor f₀ and off by the ratio r = measured / predicted gets f₀·r, so that applying the new factor to
    the uncalibrated prediction gives the measured median. A task on several classes gives each of them the same r: the log cannot
    tell them apart, and the task's time scales with r. What this run did not see keeps what was learned before.

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
            factors[row.task, name] = _factor(row, name, before, max_factor, notes)
    if not factors:
        return Fit(None, [*notes, "no calibration fitted"])
    carried = [f for f in (before.factors if before else []) if (f.task, f.device_class) not in factors]
    shared = sorted({r.task for r in comparison.rows if len(comparison.classes.get(r.task, [])) > 1})
    if shared:
        notes.append(f"one factor for all device classes of {', '.join(shared)}: the log cannot tell them apart")
    beside = comparison.beside
    calibration = Calibration(
        factors=[*factors.values(), *carried],
        overhead_s=beside.median_s if beside else 0.0,
        runs=1 + (before.runs if before else 0),
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


def _factor(row: Row, device_class: str, before: Calibration | None, max_factor: float, notes: list[str]) -> Factor:
    earlier = before.factor(task=row.task, device_class=device_class) if before else 1.0
    exact = earlier * row.measured_s / row.predicted_s
    value = min(max(exact, 1 / max_factor), max_factor)
    if value != exact:
        notes.append(
            f"{row.task} on {device_class}: factor {exact:.3g} is beyond {1 / max_factor:g} … {max_factor:g} and was held at {value:.3g}"
        )
    return Factor(device_class=device_class, task=row.task, factor=value, observations=row.iterations, spread=row.measured_spread)
