"""The engine refuses what it cannot carry out, naming the rule."""

from __future__ import annotations

from typing import Any

import pytest

from artifacts.errors import InputError
from artifacts.plan import Group, Plan
from stages.train.engines.verl.limits import check
from tests.stages.train.support import grpo_plan, job, ppo_plan, rollout_apart, strategy, topology, with_reward

RANKS = ["m0-d0", "m1-d0"]


def changed(plan: Plan, **fields: Any) -> Plan:
    return Plan.model_validate({**plan.model_dump(), **fields})


def with_task(plan: Plan, task: str, **fields: Any) -> Plan:
    tasks = {name: s.model_dump() for name, s in plan.tasks.items()}
    tasks[task] |= fields
    return changed(plan, tasks=tasks)


@pytest.mark.parametrize("layout", [
    {"pp": 2, "layers": [3, 1]}, {"tp": 2}, {"dp": 2, "shares": [96, 32]}, {"dp": 2, "shares": [64, 64]},
])
def test_what_the_engine_can_do_passes(layout: dict[str, Any]) -> None:
    tiny, fleet = job(), topology(1, 1)
    check(tiny, grpo_plan(tiny, fleet, RANKS, **layout), fleet)


def test_a_critic_passes_in_a_group_of_its_own_and_beside_the_actor() -> None:
    tiny, fleet = job("tiny-ppo"), topology(1, 1)
    check(tiny, ppo_plan(tiny, fleet, ["m0-d0"], ["m1-d0"]), fleet)
    value = strategy(RANKS, pp=2, total=tiny.batch.sequences)
    beside = grpo_plan(tiny, fleet, RANKS, pp=2)
    group = Group(name="all", tasks=[*beside.groups[0].tasks, "critic_inference", "critic_training"], devices=RANKS)
    check(tiny, changed(beside, groups=[group.model_dump()],
                        tasks={**{k: v.model_dump() for k, v in beside.tasks.items()}, "critic_inference": value.model_dump(),
                               "critic_training": value.model_dump()}), fleet)


@pytest.mark.parametrize(("overrides", "rule"), [
    (["precision=fp32"], "bf16"),
    (["engine.offload=true"], "offload"), (["engine.recompute=full"], "recompute"), (["models.reference=Qwen3-0.6B"], "reference and actor"),
])
def test_jobs_beyond_the_engine(overrides: list[str], rule: str) -> None:
    tiny, fleet = job("tiny-grpo", *overrides), topology(1, 1)
    with pytest.raises(InputError, match=rule):
        check(tiny, grpo_plan(tiny, fleet, RANKS, pp=2), fleet)


def test_asynchronous_rollout_takes_turns_with_the_actor_or_runs_apart_on_vllm() -> None:
    tiny, fleet = job("tiny-grpo", "mode=async"), topology(1, 1)
    plan = grpo_plan(tiny, fleet, ["m0-d0"])
    check(tiny, plan, fleet)
    with pytest.raises(InputError, match="mode async needs another rollout server than hf"):
        check(tiny, rollout_apart(plan, ["m1-d0"]), fleet)


def test_a_reward_model_has_a_layout_and_a_group_of_its_own_or_sits_beside_others() -> None:
    tiny, fleet = job("tiny-ppo", "reward=model"), topology(1, 1, 2)
    plan = ppo_plan(tiny, fleet, ["m0-d0"], ["m1-d0"])
    check(tiny, with_reward(plan, ["m2-d1", "m2-d0"], pp=2, layers=[1, 3]), fleet)
    check(tiny, with_reward(plan, ["m1-d0"], beside="critic"), fleet)
    with pytest.raises(InputError, match="add up to 127"):
        check(tiny, with_reward(plan, ["m2-d1", "m2-d0"], dp=2, shares=[100, 27]), fleet)
    with pytest.raises(InputError, match="the plan lacks reward_inference"):
        check(tiny, plan, fleet)
    other = job("tiny-ppo", "reward=model", "models.reward=Qwen3-0.6B")
    with pytest.raises(InputError, match="a reward model reads the actor's tokens; Qwen3-0.6B has 151936 of them, tiny-qwen3 512"):
        check(other, with_reward(plan, ["m2-d1"]), fleet)


@pytest.mark.parametrize(("task", "fields", "rule"), [
    ("reference_inference", {"layers": [2, 2]}, "has the layout"),
    ("reference_inference", {"ranks": ["m1-d0", "m0-d0"]}, "has the layout"),
    ("rollout", {"local_batch_sequences": [64, 63]}, "add up to 127"),
    ("rollout", {"dp": 1, "tp": 2, "local_batch_sequences": [128]}, "one replica a rank"),
    ("actor_training", {"layers": [3, 2]}, "add up to 5; the model has 4"),
])
def test_plans_beyond_the_engine(task: str, fields: dict[str, Any], rule: str) -> None:
    tiny, fleet = job(), topology(1, 1)
    plan = with_task(grpo_plan(tiny, fleet, RANKS, pp=2, layers=[3, 1]), task, **fields)
    with pytest.raises(InputError, match=rule):
        check(tiny, plan, fleet)


@pytest.mark.parametrize(("shares", "rule"), [([120, 7], "add up to 127"), ([126, 2], "divides into 4 mini-batches"), ([128, 0], "takes part")])
def test_shares_that_do_not_work(shares: list[int], rule: str) -> None:
    tiny, fleet = job(), topology(1, 1)
    with pytest.raises(InputError, match=rule):
        check(tiny, grpo_plan(tiny, fleet, RANKS, dp=2, shares=shares), fleet)


def test_tensor_parallelism_divides_the_kv_heads() -> None:
    tiny, fleet = job(), topology(4)
    with pytest.raises(InputError, match="kv_heads, 2"):
        check(tiny, grpo_plan(tiny, fleet, [f"m0-d{i}" for i in range(4)], tp=4), fleet)


def test_gpus_are_for_whoever_asks_to_be_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, fleet = job("tiny-grpo-vllm", "engine.recompute=full"), topology(1, 1, vendor="nvidia")
    plan = with_task(grpo_plan(tiny, fleet, RANKS, pp=2), "rollout", dp=2, local_batch_sequences=[64, 64])
    with pytest.raises(InputError, match="never been run on GPUs; m0-d0 is nvidia") as refused:
        check(tiny, plan, fleet)
    assert "HETRL_TRY_GPUS=1" in refused.value.fix
    monkeypatch.setenv("HETRL_TRY_GPUS", "1")
    check(tiny, plan, fleet)


def test_rollout_elsewhere_is_refused() -> None:
    tiny, fleet = job(), topology(1, 1)
    plan = grpo_plan(tiny, fleet, ["m0-d0"])
    away = strategy(["m1-d0"], layers=[4], total=tiny.batch.sequences)
    apart = changed(plan, groups=[{"name": "train", "tasks": ["reference_inference", "actor_training"], "devices": ["m0-d0"]},
                                  {"name": "rollout", "tasks": ["rollout"], "devices": ["m1-d0"]}],
                    tasks={**{k: v.model_dump() for k, v in plan.tasks.items()}, "rollout": away.model_dump()})
    with pytest.raises(InputError, match="rollout shares the actor's devices"):
        check(tiny, apart, fleet)


def test_vllm_samples_beside_the_actor_or_on_devices_of_its_own() -> None:
    tiny, fleet = job("tiny-grpo-vllm"), topology(2, 2)
    beside = grpo_plan(tiny, fleet, ["m0-d0", "m0-d1"], pp=2)
    check(tiny, with_task(beside, "rollout", dp=1, tp=2, local_batch_sequences=[128]), fleet)
    check(tiny, rollout_apart(beside, ["m1-d0", "m1-d1"], dp=2, shares=[96, 32]), fleet)
    check(job("tiny-grpo-vllm", "mode=async"), rollout_apart(beside, ["m1-d0"]), fleet)


@pytest.mark.parametrize(("ranks", "layout", "rule"), [
    (["m0-d1", "m1-d0"], {"tp": 2}, "the shards of a rollout replica sit on one machine; those of replica 0 sit on m0, m1"),
    (["m1-d0", "m1-d1"], {"dp": 2, "shares": [128, 0]}, "every rollout replica takes part"),
])
def test_rollouts_beyond_vllm(ranks: list[str], layout: dict[str, Any], rule: str) -> None:
    tiny, fleet = job("tiny-grpo-vllm"), topology(2, 2)
    with pytest.raises(InputError, match=rule):
        check(tiny, rollout_apart(grpo_plan(tiny, fleet, ["m0-d0"]), ranks, **layout), fleet)
