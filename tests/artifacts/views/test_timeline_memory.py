"""What the pictures are made of: spans of the timeline, rows of memory, thinning of long curves."""

from __future__ import annotations

import pytest

from artifacts.prediction import DeviceMemory
from artifacts.views.charts import MAX_POINTS, thin
from artifacts.views.memory import fullest, memory_rows
from artifacts.views.timeline import BESIDE, measured_spans, predicted_spans
from tests.artifacts.views import view_samples


def test_what_is_no_task_ends_with_the_predicted_iteration() -> None:
    s = view_samples.small()
    update = next(x for x in predicted_spans(s.plan, s.prediction) if x.lane == BESIDE)
    assert update.name == "weight_update"
    assert update.end_s == pytest.approx(s.prediction.iteration_time_s)


def test_the_log_probabilities_are_drawn_where_they_are_computed_not_behind_the_iteration() -> None:
    """Before the inference of the actor's group, which the prediction starts when they are done; and measured likewise."""
    s = view_samples.middle()
    group, rollout = s.plan.group_of("actor_training").name, s.prediction.tasks["rollout"]
    first = min(t.start_s for name, t in s.prediction.tasks.items() if name.endswith("_inference") and s.plan.group_of(name).name == group)
    took = first - rollout.start_s - rollout.time_s + 1.0
    tasks = {name: t.model_copy(update={"start_s": t.start_s + (1.0 if name != "rollout" else 0.0)}) for name, t in s.prediction.tasks.items()}
    other = s.prediction.other_s | {"actor_log_prob": took}
    prediction = s.prediction.model_copy(update={"tasks": tasks, "other_s": other, "iteration_time_s": s.prediction.iteration_time_s + 1.0})
    spans = {x.name: x for x in predicted_spans(s.plan, prediction)}
    log_prob = spans["actor_log_prob"]
    assert (log_prob.lane, log_prob.end_s) == (group, pytest.approx(first + 1.0))
    assert log_prob.start_s == pytest.approx(rollout.start_s + rollout.time_s)
    assert max(x.end_s for x in spans.values()) == pytest.approx(prediction.iteration_time_s)
    measured = {x.name: x for x in measured_spans(s.plan, prediction, {"rollout": 10.0, "actor_log_prob": 2.0, "reference_inference": 4.0})}
    assert (measured["actor_log_prob"].start_s, measured["reference_inference"].start_s) == (10.0, 12.0)
    assert measured["actor_log_prob"].lane == group


def test_measured_tasks_keep_the_predicted_order_with_their_own_durations() -> None:
    s = view_samples.middle()  # PPO: rollout, then three inference tasks side by side, then both trainings side by side
    medians = {
        "rollout": 10.0,
        "reward_inference": 1.0,
        "reference_inference": 4.0,
        "critic_inference": 2.0,
        "actor_training": 6.0,
        "critic_training": 3.0,
        "weight_update": 0.5,
        "other": 0.25,
    }
    spans = {x.name: (x.start_s, x.end_s) for x in measured_spans(s.plan, s.prediction, medians)}
    assert spans["rollout"] == (0.0, 10.0)
    assert spans["critic_inference"] == (10.0, 12.0)
    assert spans["reference_inference"] == (11.0, 15.0)  # predicted after the reward inference
    assert spans["actor_training"] == (15.0, 21.0)
    assert spans["critic_training"] == (15.0, 18.0)
    assert spans["weight_update"] == (21.0, 21.5)
    assert spans["other"] == (21.5, 21.75)


def test_memory_has_a_row_a_device_when_few_and_a_row_a_class_when_many() -> None:
    few, many = view_samples.small(), view_samples.middle()
    assert [r.label for r in memory_rows(few.topology, few.plan, few.prediction)] == ["node-a-0", "node-a-1"]
    rows = memory_rows(many.topology, many.plan, many.prediction)
    assert [(r.group, r.label) for r in rows] == [
        ("rollout", "L40S, 24 devices"),
        ("actor", "A100-80GB, 16 devices"),
        ("critic", "A100-80GB, 8 devices"),
        ("score", "L4, 12 devices"),
    ]
    assert all(r.memory.peak_bytes >= r.lowest_peak_bytes for r in rows)


def test_fullest_is_relative_to_capacity() -> None:
    s = view_samples.small()
    memory = {
        "node-a-0": DeviceMemory(capacity_bytes=1000, usable_bytes=900, working={"rollout": 500}),
        "node-a-1": DeviceMemory(capacity_bytes=200, usable_bytes=180, resident={"actor_training.weights": 150}),
    }
    assert fullest(s.prediction.model_copy(update={"memory": memory})) == ("node-a-1", 0.75)
    assert fullest(s.prediction.model_copy(update={"memory": {}})) is None


def test_long_curves_are_thinned_to_means() -> None:
    points = [(float(i), float(i % 2)) for i in range(10 * MAX_POINTS)]
    short = thin(points)
    assert len(short) == MAX_POINTS
    assert short[0] == (4.5, 0.5)
    assert thin(points[:5]) == points[:5]
