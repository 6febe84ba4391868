"""Errors, verdict and suspect against values worked out by hand (see worked.py)."""

from __future__ import annotations

import pytest

from artifacts.errors import InputError
from artifacts.prediction import TaskTime
from artifacts.throughput import Iteration, Replica
from artifacts.views.tables import error_table
from stages.validate.errors import compare, device_classes, suspect, validation
from stages.validate.measured import measure, sample
from tests.stages.validate.worked import ITERATIONS, PLAN, PREDICTION, TOPOLOGY, throughput


def _measured(iterations: list[Iteration] = ITERATIONS, skip: int = 1):
    return measure(throughput(iterations), skip=skip, where="log")


def _compare(prediction=PREDICTION, iterations: list[Iteration] = ITERATIONS):
    return compare(TOPOLOGY, PLAN, prediction, _measured(iterations))


def test_median_and_interquartile_range_by_hand() -> None:
    found = sample([5.0, 6.0, 7.0])  # quartiles 5.5 and 6.5
    assert (found.median_s, found.count) == (6.0, 3)
    assert found.spread == pytest.approx(1 / 6)
    assert sample([3.0]).spread == 0.0


def test_a_task_is_its_slowest_replica_and_the_rest_is_dispatch() -> None:
    """Rollout 6 s of which its replicas worked 5 and 4; training 2.5 s, whose replica says 3 (clocks differ): nothing beyond."""
    replicas = {"rollout": [Replica(sequences=4, tokens=64, time_s=s) for s in (5.0, 4.0)],
                "actor_training": [Replica(sequences=8, tokens=128, time_s=3.0)]}
    measured = _measured([ITERATIONS[0], ITERATIONS[2].model_copy(update={"replicas": replicas})])
    assert {k: s.median_s for k, s in measured.tasks.items()} == {
        "rollout": 5.0, "reference_inference": 1.0, "actor_training": 2.5, "weight_update": 0.5, "reward": 0.25, "other": 0.25,
        "dispatch": 1.0}
    assert measured.whole.median_s == 10.0
    beside = measured.beside(["rollout", "reference_inference", "actor_training", "weight_update"])
    assert beside is not None and beside.median_s == 1.5


def test_errors_by_task() -> None:
    rows = {r.task: r for r in _compare().rows}
    assert {t: r.error for t, r in rows.items()} == pytest.approx(
        {"rollout": -1 / 3, "reference_inference": 0.0, "actor_training": 0.2, "weight_update": 0.0}
    )
    assert {t: r.measured_s for t, r in rows.items()} == {
        "rollout": 6.0,
        "reference_inference": 1.0,
        "actor_training": 2.5,
        "weight_update": 0.5,
    }
    assert {r.iterations for r in rows.values()} == {3}
    assert rows["rollout"].measured_spread == pytest.approx(1 / 6)


def test_the_published_model_stands_beside_it_and_judges_nothing() -> None:
    """Measured 6 s of rollout; the published formulas have no weight update."""
    both = PREDICTION.model_copy(update={"paper_s": {"iteration": 5.0, "rollout": 9.0}})
    comparison = _compare(both)
    rows = {r.task: r for r in comparison.rows}
    assert (rows["rollout"].paper_s, rows["rollout"].paper_error) == (9.0, pytest.approx(0.5))
    assert rows["weight_update"].paper_s is rows["weight_update"].paper_error is None
    assert comparison.whole.error == _compare().whole.error
    result = validation(comparison, PLAN, bound=0.35, trend=[], notes=[], simulated=False)
    shown, plain = error_table(result), error_table(validation(_compare(), PLAN, bound=0.35, trend=[], notes=[], simulated=False))
    assert shown.columns == (*plain.columns, "Published model", "Its error")
    last = {row[0].lower(): row[-1] for row in shown.rows}
    assert (last["rollout"], last["weight update"]) == ("+50 %", "–")


def test_a_task_on_several_classes_is_one_row() -> None:
    classes = {r.task: r.device_class for r in _compare().rows}
    assert classes == {"rollout": "fast+slow", "reference_inference": "fast", "actor_training": "fast", "weight_update": "fast+slow"}
    assert device_classes("reshard", TOPOLOGY, PLAN) == []


def test_whole_iteration_and_verdict_on_either_side_of_the_bound() -> None:
    comparison = _compare()
    assert comparison.whole.error == pytest.approx(-0.15)

    def verdict(bound: float) -> str:
        return validation(comparison, PLAN, bound=bound, trend=[], notes=[], simulated=False).verdict

    assert (verdict(0.35), verdict(0.16), verdict(0.14)) == ("ok", "ok", "off")
    result = validation(comparison, PLAN, bound=0.35, trend=[], notes=["more"], simulated=False)
    assert result.median_abs_error == pytest.approx(0.1)  # of 1/3, 0.2, 0, 0
    assert result.notes == ["measured beside the predicted tasks, and not predicted: reward 250.0 ms, other 250.0 ms", "more"]


def test_suspect_adds_most_seconds_in_the_direction_of_the_error() -> None:
    assert _compare().suspect == "rollout"
    # the prediction 2 s too long as a whole: rollout's −2 s cannot be why, actor training's +0.5 s is
    assert _compare(PREDICTION.model_copy(update={"iteration_time_s": 12.0})).suspect == "actor_training"
    assert suspect({"a": 1.0, "b": -3.0}, 2.0) == "a"
    assert suspect({"a": 1.0}, -1.0) == ""
    assert suspect({"a": 1.0, "b": -3.0}, 0.0) == "b"


def test_unpredicted_time_can_be_the_suspect() -> None:
    slow = [i.model_copy(update={"by_task_s": {**i.by_task_s, "other": 9.0}, "time_s": i.time_s + 9.0}) for i in ITERATIONS]
    assert _compare(iterations=slow).suspect == "other"


def test_a_predicted_overhead_is_compared_with_what_no_task_explains() -> None:
    comparison = _compare(PREDICTION.model_copy(update={"other_s": {"weight_update": 0.5, "overhead": 0.25}}))
    row = next(r for r in comparison.rows if r.task == "other")
    assert (row.predicted_s, row.measured_s, row.error) == (0.25, 0.5, -0.5)
    assert comparison.notes == []


def test_what_one_side_lacks_is_a_note() -> None:
    tasks = {**PREDICTION.tasks, "critic_training": TaskTime(time_s=7.0)}
    comparison = _compare(PREDICTION.model_copy(update={"tasks": tasks}))
    assert "critic_training is predicted to take 7.00 s and does not appear in the log" in comparison.notes
    assert any("reward 250.0 ms" in n for n in comparison.notes)
    idle = [i.model_copy(update={"by_task_s": {**i.by_task_s, "weight_update": 0.0}}) for i in ITERATIONS]
    comparison = _compare(iterations=idle)
    assert "weight_update" not in {r.task for r in comparison.rows}
    assert any(n.startswith("weight_update measured 0 s") for n in comparison.notes)


def test_nothing_in_common_is_refused() -> None:
    alien = [i.model_copy(update={"by_task_s": {"alien": 1.0}}) for i in ITERATIONS]
    with pytest.raises(InputError, match="no task in common"):
        _compare(iterations=alien)


def test_warm_up_is_left_out_unless_nothing_else_is_there() -> None:
    assert _measured(skip=0).whole.count == 4
    assert _measured(skip=1).whole.median_s == 10.0
    only = _measured(ITERATIONS[:2], skip=5)
    assert (only.whole.median_s, only.whole.count, only.warm_up) == (9.0, 1, 1)
    with pytest.raises(InputError, match="no finished iteration"):
        _measured([], skip=1)
