"""What verl measured becomes a line of the log; a run that diverges stops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from artifacts.errors import HetrlError
from artifacts.throughput import Header, Throughput
from stages.train.log import ThroughputLog
from stages.train.summary import line, summarize
from tests.stages.train.support import grpo_plan, job, topology

pytest.importorskip("verl")
from stages.train.engines.verl.metrics import iteration

pytestmark = pytest.mark.engine


@pytest.fixture
def plan():  # type: ignore[no-untyped-def]
    tiny = job()
    return grpo_plan(tiny, topology(1, 1), ["m1-d0", "m0-d0"], dp=2, shares=[88, 40])


@pytest.fixture
def step():  # type: ignore[no-untyped-def]
    from stages.train.engines.verl.trainer import Step

    def work(sequences: int, seconds: float) -> dict:
        done = {"sequences": sequences, "tokens": sequences * 44, "seconds": seconds}
        return {"actor_training": done, "reference_inference": done, "actor_log_prob": done}

    return Step(
        number=3,
        metrics={"actor/loss": 0.5, "actor/grad_norm": 2.0, "actor/kl_loss": 0.01, "actor/entropy": 6.0, "critic/score/mean": 0.25,
                 "response_length/mean": 4.0, "actor/perf/max_memory_allocated_gb": 0.5},
        seconds={"step": 10.0, "gen": 3.0, "old_log_prob": 1.0, "ref": 1.0, "adv": 0.5, "update_actor": 3.0, "update_weights": 0.25},
        sequence_tokens=[44] * 128, actor_work=[work(88, 2.5), work(40, 1.0)], critic_work=[],
        rollout_work=[{"sequences": 60, "tokens": 2640, "seconds": 1.0}, {"sequences": 68, "tokens": 2992, "seconds": 2.0}], score_seconds=1.0)


def test_tasks_sum_to_the_iteration(step, plan) -> None:  # type: ignore[no-untyped-def]
    found = iteration(step, plan)
    assert found.by_task_s == pytest.approx({"rollout": 2.0, "reward": 1.0, "actor_log_prob": 1.0, "reference_inference": 1.0,
                                             "actor_training": 3.0, "weight_update": 0.25, "other": 1.75})
    assert sum(found.by_task_s.values()) == pytest.approx(found.time_s)
    assert (found.reward_mean, found.loss, found.grad_norm, found.kl, found.entropy) == (0.25, 0.5, 2.0, 0.01, 6.0)
    assert (found.sequences, found.tokens, found.samples_per_s) == (128, 128 * 44, 12.8)
    assert found.memory_peak_bytes == 2**29


def test_scoring_beside_the_rollout_is_not_taken_from_it(step, plan) -> None:  # type: ignore[no-untyped-def]
    """Responses are scored as they arrive: scoring may last as long as the rollout. The busiest server counts for itself."""
    found = iteration(replace(step, score_seconds=5.0), plan).by_task_s
    assert (found["rollout"], found["reward"]) == (2.0, 1.0)


def test_replicas_are_in_the_plans_order(step, plan) -> None:  # type: ignore[no-untyped-def]
    found = iteration(step, plan).replicas
    assert [r.sequences for r in found["actor_training"]] == [88, 40]
    assert [r.time_s for r in found["actor_training"]] == [2.5, 1.0]
    assert [r.sequences for r in found["rollout"]] == [60, 68]


@pytest.mark.parametrize(("metric", "name"), [("actor/loss", "loss"), ("actor/grad_norm", "grad_norm")])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_divergence_stops_with_one_line(metric: str, name: str, value: float, step, plan) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(HetrlError, match=f"iteration 3: {name} is {value}"):
        iteration(replace(step, metrics={**step.metrics, metric: value}), plan)


def test_the_log_can_be_read_at_any_time(tmp_path: Path, step, plan) -> None:  # type: ignore[no-untyped-def]
    log = ThroughputLog(tmp_path / "throughput.jsonl", Header(engine="verl", job="j", plan="p", seed=0))
    for number in (1, 2, 3):
        log.add(iteration(replace(step, number=number, seconds={**step.seconds, "step": 10.0 * number}), plan))
        read = Throughput.from_jsonl((tmp_path / "throughput.jsonl").read_bytes(), where="log")
        assert [i.step for i in read.iterations] == list(range(1, number + 1))
    summary = summarize(read)
    assert summary["iteration_time_s"] == 25.0, "the first iteration is left out"
    assert summary["iterations"] == 3 and summary["by_task"]["rollout"] == 2.0
    assert line(read.iterations[0], 3) == "iteration 1/3, 10.00 s, reward 0.25, loss 0.5, grad norm 2"
    assert Throughput.from_jsonl(log.content.to_jsonl(), where="copy") == log.content
