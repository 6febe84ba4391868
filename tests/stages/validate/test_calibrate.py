"""The fitted factors bring the prediction to the measured medians, alone and over several runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.calibration import Calibration
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
    return fit(compare(TOPOLOGY, PLAN, prediction, measured), prediction, used, topology=TOPOLOGY, used_names=names, max_factor=max_factor)


def _factors(fitted: Fit) -> dict[tuple[str, str], float]:
    assert fitted.calibration is not None
    return {(f.task, f.device_class): f.factor for f in fitted.calibration.factors}


def _one(ratio: float, *, spread: float, count: int = 3, scatter: float = 0.1, known: float = 0.0) -> float:
    """By how much a run's ratio moves a factor of which ``known`` evidence is there, worked out beside the code."""
    evidence = 1 / (scatter * scatter + spread * spread / count)
    return math.exp(math.log(ratio) * evidence / (0.25 + known + evidence))


def test_first_factors_are_nearly_measured_over_predicted() -> None:
    fitted = _fit()
    rollout = _one(1.5, spread=1 / 6, scatter=0.2)  # on two classes
    assert _factors(fitted) == pytest.approx(
        {
            ("rollout", "fast"): rollout,
            ("rollout", "slow"): rollout,
            ("reference_inference", "fast"): 1.0,
            ("actor_training", "fast"): _one(2.5 / 3, spread=0.2),
            ("weight_update", "fast"): 1.0,
            ("weight_update", "slow"): 1.0,
        }
    )
    assert rollout == pytest.approx(1.493, abs=0.002)
    assert fitted.calibration is not None
    assert fitted.calibration.overhead_s == pytest.approx(0.5)  # reward and other, summed in each iteration
    assert (fitted.calibration.runs, fitted.calibration.factors[0].observations) == (1, 3)
    assert "one factor for all device classes of rollout, weight_update: the log cannot tell them apart" in fitted.notes


def test_factors_compose_with_those_the_prediction_was_made_with() -> None:
    fitted = _fit(CALIBRATED, USED)
    found = _factors(fitted)
    assert found["rollout", "fast"] == pytest.approx(2.0 * _one(1.5, spread=1 / 6, scatter=0.2, known=100))
    assert found["rollout", "slow"] == pytest.approx(2.0 * _one(1.5, spread=1 / 6, scatter=0.2)), "not seen there: as on the fast one before"
    assert found["actor_training", "fast"] == pytest.approx(0.5 * _one(2.5 / 3, spread=0.2, known=100))
    assert found["critic_training", "fast"] == 3.0  # not part of this run: what was learned stays
    assert fitted.calibration is not None and fitted.calibration.runs == 3


def _runs(ratios: list[float]) -> list[float]:
    """Factor of actor training after each of several runs, every one predicted with what the earlier ones taught."""
    used, found = None, []
    for ratio in ratios:
        factor = used.factor(task="actor_training", device_class="fast") if used else 1.0
        tasks = PREDICTION.tasks | {"actor_training": PREDICTION.tasks["actor_training"].model_copy(update={"time_s": 3.0 * factor})}
        iterations = [i.model_copy(update={"by_task_s": {"actor_training": 3.0 * ratio}}) for i in ITERATIONS]
        fitted = _fit(CALIBRATED.model_copy(update={"tasks": tasks, "calibration": "c1" if used else ""}), used, iterations=iterations,
                      max_factor=1e6)
        assert fitted.calibration is not None
        used = fitted.calibration
        found.append(used.factor(task="actor_training", device_class="fast"))
    return found


@given(ratio=st.floats(0.05, 20), count=st.integers(1, 6))
def test_runs_that_agree_leave_what_the_prior_holds_back(ratio: float, count: int) -> None:
    """n runs of evidence 100 against a prior of 0.25: log factor = 100 n / (100 n + 0.25) · log ratio."""
    last = _runs([ratio] * count)[-1]
    assert math.log(last) == pytest.approx(math.log(ratio) * 100 * count / (100 * count + 0.25), abs=1e-9)


@given(st.permutations([0.5, 1.5, 4.0]))
def test_the_order_of_runs_does_not_matter(ratios: list[float]) -> None:
    assert math.log(_runs(ratios)[-1]) == pytest.approx(sum(map(math.log, ratios)) * 100 / 300.25)


def test_a_run_of_scattered_iterations_moves_less() -> None:
    def one(times: list[float]) -> float:
        iterations = [i.model_copy(update={"by_task_s": {"actor_training": t}}) for i, t in zip(ITERATIONS, [9.0, *times], strict=True)]
        return _factors(_fit(iterations=iterations))["actor_training", "fast"]

    assert 1 < one([1.0, 6.0, 11.0]) < one([5.0, 6.0, 7.0]) < one([6.0, 6.0, 6.0]) < 2


def test_the_overhead_is_the_mean_over_runs() -> None:
    fitted = _fit(CALIBRATED, USED.model_copy(update={"overhead_s": 2.0}))  # of two runs; this one has 0.5
    assert fitted.calibration is not None and fitted.calibration.overhead_s == pytest.approx(1.5)


def test_the_overhead_grows_with_the_calls_of_an_iteration() -> None:
    """This job has three tasks, so five calls; what seven calls took before counts for five of them."""
    fitted = _fit(CALIBRATED, USED.model_copy(update={"overhead_s": 2.8, "overhead_calls": 7}))  # of two runs; this one has 0.5
    assert fitted.calibration is not None and fitted.calibration.overhead_s == pytest.approx((2 * 2.0 + 0.5) / 3)
    assert fitted.calibration.overhead(tasks=3) == fitted.calibration.overhead_s
    assert fitted.calibration.overhead(tasks=5) == pytest.approx(7 / 5 * fitted.calibration.overhead_s)


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
    assert 1 / 1.2 < found["actor_training", "fast"] < 1
    assert any("rollout on fast: factor 1.49 is beyond" in n for n in fitted.notes)
