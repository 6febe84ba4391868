"""Pools follow the plan's groups; a rank that is elsewhere stops the run by name."""

from __future__ import annotations

import pytest

from artifacts.errors import ClusterChanged
from artifacts.plan import Group
from stages.train.engines.verl.placement import compare, pools_of
from tests.stages.train.support import grpo_plan, job, ppo_plan, strategy, topology, with_reward

NODES = {"m0": "node-a", "m1": "node-b"}


def test_actor_and_critic_get_pools_of_their_own() -> None:
    tiny, fleet = job("tiny-ppo"), topology(2, 2)
    plan = ppo_plan(tiny, fleet, ["m0-d1", "m0-d0"], ["m1-d0", "m1-d1"], pp=2, critic={"tp": 2})
    actor, critic = pools_of(plan)
    assert (actor.roles, actor.devices) == (("actor",), ("m0-d1", "m0-d0"))
    assert (critic.roles, critic.devices) == (("critic",), ("m1-d0", "m1-d1"))


def test_one_group_is_one_pool() -> None:
    tiny, fleet = job(), topology(2)
    plan = grpo_plan(tiny, fleet, ["m0-d0", "m0-d1"], pp=2)
    value = strategy(["m0-d0", "m0-d1"], pp=2, total=tiny.batch.sequences)
    group = Group(name="all", tasks=[*plan.groups[0].tasks, "critic_inference", "critic_training"], devices=["m0-d0", "m0-d1"])
    both = plan.model_copy(update={"groups": [group], "tasks": {**plan.tasks, "critic_inference": value, "critic_training": value}})
    assert [(p.name, p.roles) for p in pools_of(both)] == [("all", ("actor", "critic"))]


def test_a_reward_model_beside_others_has_processes_of_its_own() -> None:
    tiny, fleet = job("tiny-ppo", "reward=model"), topology(2, 2, 1)
    plan = ppo_plan(tiny, fleet, ["m0-d1", "m0-d0"], ["m1-d0", "m1-d1"], pp=2, critic={"tp": 2})
    _, critic, reward = pools_of(with_reward(plan, ["m1-d1", "m1-d0"], beside="critic", pp=2))
    assert (critic.devices, critic.processes) == (("m1-d0", "m1-d1"), 2)
    assert (reward.roles, reward.devices, reward.processes) == (("reward",), ("m1-d1", "m1-d0"), 2)
    alone = pools_of(with_reward(plan, ["m2-d0"]))[-1]
    assert (alone.name, alone.devices, alone.processes) == ("reward", ("m2-d0",), 1)


def test_ranks_in_their_places_pass_and_others_are_named() -> None:
    tiny, fleet = job(), topology(1, 1)
    (spec,) = pools_of(grpo_plan(tiny, fleet, ["m1-d0", "m0-d0"], pp=2))
    right = [{"node_id": "node-b", "device": "m1-d0", "uuid": "", "pid": 1}, {"node_id": "node-a", "device": "m0-d0", "uuid": "", "pid": 2}]
    compare(spec, right, topology=fleet, node_of_machine=NODES)
    with pytest.raises(ClusterChanged) as error:
        compare(spec, right[::-1], topology=fleet, node_of_machine=NODES)
    assert "rank 0 of group all is on m0/m0-d0, planned on m1/m1-d0" in error.value.line
    assert "rank 1 of group all is on m1/m1-d0, planned on m0/m0-d0" in error.value.line


def test_gpus_are_told_apart_by_uuid() -> None:
    tiny, fleet = job(), topology(2, vendor="nvidia")
    (spec,) = pools_of(grpo_plan(tiny, fleet, ["m0-d1", "m0-d0"], pp=2))
    right = [{"node_id": "node-a", "device": "", "uuid": f"uuid-0-{d}", "pid": d} for d in (1, 0)]
    compare(spec, right, topology=fleet, node_of_machine=NODES)
    with pytest.raises(ClusterChanged, match="rank 0 of group all is on m0/m0-d0, planned on m0/m0-d1"):
        compare(spec, right[::-1], topology=fleet, node_of_machine=NODES)
    with pytest.raises(ClusterChanged, match="rank 1 of group all is on m0/no device"):
        compare(spec, [right[0], {**right[1], "uuid": ""}], topology=fleet, node_of_machine=NODES)
