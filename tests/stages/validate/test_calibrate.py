"""The fitted factors reproduce the measured medians, alone and on top of an earlier calibration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.calibration import Calibration, Factor
from artifacts.prediction import Prediction
from artifacts.throughput import Iteration
from stages.validate.calibrate import Fit, fit
from stages.validate.errors import compare
from stages.validate.measured import measure
from tests.stages.validate.worked import ITERATIONS, PLAN, PREDICTION, TOPOLOGY, USED, throughput

CALIBRATED = PREDICTION.model_copy(update={"calibration": "c1"})


def _fit(
    prediction: Prediction = PREDICTION,
    used: Calibration | None = None,
    *,
    iterations: list[Iteration] = ITERATIONS,
    max_factor: float = 100.0,
    names: tuple[str, ...] = ("c1", "validate@c1"),
) -> Fit:
    measured = measure(throughput(iterations), skip=1, where="log")
    return fit(compare(TOPOLOGY, PLAN, prediction, measured), prediction, used, used_names=names, max_factor=max_factor)


def _factors(fitted: Fit) -> dict[tuple[str, str], float]:
    assert fitted.calibration is not None
    return {(f.task, f.device_class): f.factor for f in fitted.calibration.factors}


def test_first_factors_are_measured_over_predicted() -> None:
    fitted = _fit()
    assert _factors(fitted) == pytest.approx(
        {
            ("rollout", "fast"): 1.5,
            ("rollout", "slow"): 1.5,
            ("reference_inference", "fast"): 1.0,
            ("actor_training", "fast"): 2.5 / 3,
            ("weight_update", "fast"): 1.0,
            ("weight_update", "slow"): 1.0,
        }
    )
    assert fitted.calibration is not None
    assert fitted.calibration.overhead_s == pytest.approx(0.5)  # reward and other, summed in each iteration
    assert (fitted.calibration.runs, fitted.calibration.factors[0].observations) == (1, 3)
    assert "one factor for all device classes of rollout, weight_update: the log cannot tell them apart" in fitted.notes


def test_factors_compose_with_those_the_prediction_was_made_with() -> None:
    fitted = _fit(CALIBRATED, USED)
    found = _factors(fitted)
    assert found["rollout", "fast"] == pytest.approx(2.0 * 1.5)
    assert found["rollout", "slow"] == pytest.approx(1.0 * 1.5)
    assert found["actor_training", "fast"] == pytest.approx(0.5 * 2.5 / 3)
    assert found["critic_training", "fast"] == 3.0  # not part of this run: what was learned stays
    assert fitted.calibration is not None and fitted.calibration.runs == 3


@given(ratios=st.tuples(*[st.floats(0.05, 20)] * 3), earlier=st.tuples(*[st.floats(0.1, 10)] * 4))
def test_applying_the_factors_to_the_uncalibrated_prediction_gives_the_medians(
    ratios: tuple[float, ...], earlier: tuple[float, ...]
) -> None:
    names = ("rollout", "reference_inference", "actor_training")
    raw = {"rollout": {"fast": 2.0, "slow": 4.0}, "reference_inference": {"fast": 1.0}, "actor_training": {"fast": 3.0}}
    old = dict(
        zip([("rollout", "fast"), ("rollout", "slow"), ("reference_inference", "fast"), ("actor_training", "fast")], earlier, strict=True)
    )
    used = Calibration(runs=1, factors=[Factor(task=t, device_class=c, factor=f, observations=2) for (t, c), f in old.items()])

    def priced(calibration: Calibration, task: str) -> float:
        """A task takes as long as its slowest class."""
        return max(seconds * calibration.factor(task=task, device_class=c) for c, seconds in raw[task].items())

    tasks = {t: PREDICTION.tasks[t].model_copy(update={"time_s": priced(used, t)}) for t in names}
    medians = {t: tasks[t].time_s * r for t, r in zip(names, ratios, strict=True)}
    iterations = [i.model_copy(update={"by_task_s": medians}) for i in ITERATIONS]
    fitted = _fit(CALIBRATED.model_copy(update={"tasks": tasks, "other_s": {}}), used, iterations=iterations, max_factor=1e6)
    assert fitted.calibration is not None
    for task in names:
        assert priced(fitted.calibration, task) == pytest.approx(medians[task])


def test_one_counted_iteration_fits_nothing() -> None:
    fitted = _fit(iterations=ITERATIONS[:2])
    assert fitted.calibration is None
    assert "rollout: no factor from 1 counted iteration, at least 2 are needed" in fitted.notes


def test_a_calibration_that_is_not_at_hand_is_not_guessed() -> None:
    for used, names in ((None, ()), (USED, ("c2", "validate@c2"))):
        fitted = _fit(CALIBRATED, used, names=names)
        assert fitted.calibration is None
        assert "was made with calibration c1, which is not among the inputs" in fitted.notes[0]


def test_a_calibration_the_prediction_did_not_use_does_not_count() -> None:
    assert _factors(_fit(PREDICTION, USED)) == _factors(_fit())


def test_factors_are_bounded_and_say_so() -> None:
    fitted = _fit(max_factor=1.2)
    found = _factors(fitted)
    assert found["rollout", "fast"] == 1.2
    assert found["actor_training", "fast"] == pytest.approx(1 / 1.2)
    assert any("rollout on fast: factor 1.5 is beyond" in n for n in fitted.notes)
