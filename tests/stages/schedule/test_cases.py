"""Situations of real users: what is refused, with which words, and what is planned instead."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from artifacts.errors import InfeasiblePlan, InputError
from artifacts.job import Constraints, Engine, Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from stages.schedule.cost.iteration import compose, price_group
from stages.schedule.draft import Cut, GroupDraft
from stages.schedule.legality import broken_rules, memory_violations
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.problem import build_problem
from stages.schedule.solve import Solution, solve
from tests.stages.schedule.builders import A100, CPU, L4, V100, Kind, big_job, job, small_model, topology

EVEN = Kind("even", 1e8, 1e12, 2**33, vendor="cpu", inside=1e12)
TWICE = Kind("twice", 2e8, 2e12, 2**33, vendor="cpu", inside=1e12)


def plan(work: Job, fleet: Topology, *, evaluations: int = 800) -> Solution:
    return solve(work, fleet, parameters=ScheduleParameters(evaluations=evaluations))


def refusal(work: Job, fleet: Topology, *, evaluations: int = 400) -> InfeasiblePlan:
    with pytest.raises(InfeasiblePlan) as caught:
        plan(work, fleet, evaluations=evaluations)
    return caught.value


def rules(error: InfeasiblePlan) -> list[tuple[str, str]]:
    return [(v["rule"], v["where"]) for v in error.details["violations"]]


def test_tp_8_of_28_heads_is_refused_in_one_message() -> None:
    error = refusal(big_job("Qwen2.5-7B", algorithm="grpo", constraints=Constraints(fix={"actor_training": {"tp": 8}})), topology([(A100, 8)]))
    assert rules(error) == [("tensor_parallel", "actor_training")]
    assert "28 % 8 = 4" in error.message
    assert error.fix == "set constraints.fix.actor_training.tp to one of 1, 2, 4"


def test_qwen2_5_7b_uses_the_whole_node_in_legal_shards() -> None:
    found = plan(big_job("Qwen2.5-7B", algorithm="grpo"), topology([(A100, 8)]))
    assert {s.tp for s in found.plan.tasks.values()} <= {1, 2, 4}
    assert not found.plan.idle_devices


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_every_legal_shard_of_28_heads_can_use_the_whole_node(tp: int) -> None:
    found = plan(big_job("Qwen2.5-7B", algorithm="grpo", constraints=Constraints(fix={"actor_training": {"tp": tp}})), topology([(A100, 8)])).plan
    assert found.tasks["actor_training"].tp == tp and len(found.tasks["actor_training"].ranks) == 8
    assert not found.idle_devices


@pytest.mark.parametrize(("kinds", "expected"), [([EVEN] * 4, [7, 7, 8, 8]), ([TWICE, TWICE, EVEN, EVEN], [5, 5, 10, 10])])
def test_thirty_layers_over_four_stages(kinds: list[Kind], expected: list[int]) -> None:
    """The kernel's own layout of a critic, whose head of one output hardly weighs: none of 30 layers is lost, fast stages take twice as many."""
    problem = build_problem(job(small_model(layers=30), algorithm="ppo"), topology([(kind, 1) for kind in kinds]))
    group = price_group(problem, GroupDraft(("critic_inference", "critic_training"), (0, 1, 2, 3), Cut(dp=1, pp=4, tp=1, micro=4)))
    assert group is not None
    for layout in group.layouts.values():
        assert sorted(layout.layers) == expected
        speeds = [kinds[d] is TWICE for d in layout.devices()]
        assert [fast for _, fast in sorted(zip(layout.layers, speeds, strict=True))] == sorted(speeds)


def test_every_layer_is_planned_when_depth_does_not_divide() -> None:
    """28 layers on 5 stages, the last of which also has the head: with the softmax it is worth 6 layers of this model."""
    work = big_job("Qwen3-1.7B", algorithm="grpo", constraints=Constraints(fix={"actor_training": {"pp": 5, "dp": 1, "tp": 1}}))
    layers = plan(work, topology([(A100, 5)])).plan.tasks["actor_training"].layers
    assert sum(layers) == 28 and sorted(layers[:4]) == [6, 7, 7, 7] and layers[4] == 1


def test_three_equal_nodes_never_make_three_replicas_and_what_is_left_over_is_explained() -> None:
    found = plan(job("tiny-qwen3", prompts=32, responses=8), topology([(CPU, 1)] * 3))
    assert found.plan.tasks["actor_training"].dp in (1, 2)
    used = {d for g in found.plan.groups for d in g.devices}
    assert len(used) + len(found.plan.idle_devices) == 3
    assert all(reason for reason in found.plan.idle_devices.values())


def test_a_mini_batch_smaller_than_its_replicas_is_refused() -> None:
    """PPO with one response a prompt: a mini-batch of 2 over 4 replicas would leave two of them without a sequence."""
    work = job("tiny-qwen3", algorithm="ppo", prompts=8, responses=1, mini=2, micro=1, constraints=Constraints(fix={"actor_training": {"dp": 4}}))
    error = refusal(work, topology([(CPU, 4)]))
    assert rules(error) == [("replicas", "actor_training")]
    assert "the mini-batch has 2" in error.message


def test_a_device_without_the_precision_stays_idle_and_says_why() -> None:
    found = plan(big_job("Qwen2.5-7B", algorithm="grpo"), topology([(A100, 4), (V100, 4)]))
    assert found.plan.idle_devices == {f"m1.{g}": "V100 has no bf16" for g in range(4)}
    assert not any(rank.startswith("m1.") for strategy in found.plan.tasks.values() for rank in strategy.ranks)


def test_a_device_without_the_precision_serves_a_job_in_a_precision_it_has() -> None:
    found = plan(big_job("Qwen2.5-7B", algorithm="grpo", precision="fp16"), topology([(A100, 4), (V100, 4)]))
    assert not any("has no" in reason for reason in found.plan.idle_devices.values())


def test_only_devices_without_the_precision() -> None:
    error = refusal(big_job("Qwen3-1.7B", algorithm="grpo"), topology([(V100, 2)]))
    assert "V100 has no bf16" in error.message and error.fix == "choose a precision the devices have"


def test_no_collective_runs_over_a_link_whose_probe_failed() -> None:
    """m0 and m1 cannot talk: one machine does everything, and the other says why it does nothing."""
    found = plan(big_job("Qwen3-1.7B", algorithm="grpo"), topology([(A100, 2), (A100, 2)], failed=[(0, 1)]))
    assert len({d.split(".")[0] for d in found.plan.groups[0].devices}) == 1
    assert all("no usable link" in reason for reason in found.plan.idle_devices.values())


def test_a_second_node_behind_a_slow_network_is_left_out_and_the_plan_says_so() -> None:
    """Case: 549 s a step on one node became 710 s on two."""
    found = plan(job("tiny-qwen3"), topology([(CPU, 2), (CPU, 2)], lan=(2e-3, 1e5)))
    machines = {d.split(".")[0] for g in found.plan.groups for d in g.devices}
    assert len(machines) == 1
    assert len(found.plan.idle_devices) == 2
    assert all("slower with the 2 devices" in reason and "against" in reason for reason in found.plan.idle_devices.values())


def test_a_second_node_behind_a_fast_network_is_used() -> None:
    found = plan(job("tiny-qwen3"), topology([(CPU, 2), (CPU, 2)], lan=(5e-6, 1e9)))
    assert not found.plan.idle_devices


def test_a_model_that_cannot_fit_names_the_memory_and_what_would_help() -> None:
    error = refusal(big_job("Qwen3-32B", algorithm="grpo"), topology([(L4, 4)]))
    assert error.details["violations"][0]["rule"] == "memory"
    assert "training state alone needs" in error.message and "GiB more memory" in error.fix


def test_a_mend_of_memory_is_offered_only_after_it_was_seen_to_work() -> None:
    """Without recomputation 1.7B does not fit 2 × 23 GiB at micro-batch 4 of 16k tokens; with full recomputation it does."""
    work = job("Qwen3-1.7B", prompts=8, responses=2, micro=1, prompt=(8192, 8192), response=(4096, 4096), engine=Engine(recompute="none"))
    small = Kind("S", 75e12, 240e9, 40 * 2**30)
    error = refusal(work, topology([(small, 2)]))
    assert error.fix == "set engine.recompute to 'full'"
    assert any(v["rule"] == "memory" for v in error.details["violations"])
    assert plan(work.model_copy(update={"engine": Engine(recompute="full")}), topology([(small, 2)])).plan


def test_pins_are_kept_and_forbidden_regions_stay_empty() -> None:
    fleet = topology([(A100, 2), (A100, 2), (A100, 2)], regions=["eu", "us", "eu"], wan=(1e-3, 5e9))
    constraints = Constraints(pin={"rollout": ["m2"], "actor_training": ["m0"]}, forbid_regions=["us"])
    found = plan(big_job("Qwen3-1.7B", algorithm="grpo", constraints=constraints), fleet).plan
    assert {r.split(".")[0] for r in found.tasks["rollout"].ranks} == {"m2"}
    assert {r.split(".")[0] for r in found.tasks["actor_training"].ranks} == {"m0"}
    assert found.idle_devices["m1.0"] == "region us is forbidden by constraints.forbid_regions"


def test_all_broken_constraints_are_listed_at_once_with_their_names() -> None:
    constraints = Constraints(pin={"rollout": ["m0"], "actor_training": ["m1", "m9"]}, fix={"actor_training": {"tp": 3, "pp": 99}})
    error = refusal(job("tiny-qwen3", constraints=constraints, mode="async"), topology([(CPU, 2), (CPU, 2)]))
    found = {v["constraint"] for v in error.details["violations"]}
    assert {"pin.actor_training", "pin.rollout", "fix.actor_training"} <= found
    assert {r for r, _ in rules(error)} >= {"mode", "unknown", "share_group", "tensor_parallel", "pipeline", "devices"}
    assert error.message.startswith(f"{len(error.details['violations'])} rules are broken")
    assert error.fix == "set mode to 'sync'"


def test_weight_synchronisation_is_priced_with_its_own_links_and_shown() -> None:
    """Weights sent from one rank to engines elsewhere, which fetch 2 bytes a parameter through m0's port of 1e8 B/s.

    It takes so long that fewer engines are planned than there are machines, and the plan says so.
    """
    constraints = Constraints(pin={"rollout": ["m1", "m2", "m3"], "actor_training": ["m0"], "reference_inference": ["m0"]})
    found = plan(big_job("Qwen3-0.6B", algorithm="grpo", constraints=constraints), topology([(A100, 1)] * 4, lan=(1e-3, 1e8)))
    engines, prediction = found.plan.tasks["rollout"].ranks, found.prediction
    assert found.plan.tasks["rollout"].tp == 1
    assert prediction.other_s["weight_update"] == pytest.approx(len(engines) * 2 * 596_049_920 / 1e8, rel=1e-3)
    ends = max(t.start_s + t.time_s for t in prediction.tasks.values())
    assert prediction.iteration_time_s == pytest.approx(ends + prediction.other_s["weight_update"])
    assert len(engines) + len(found.plan.idle_devices) == 3 and all("slower with" in r for r in found.plan.idle_devices.values())


def test_the_peak_includes_the_first_optimizer_step() -> None:
    """Optimizer state (12 bytes a parameter) appears at the first step: a GPU on which all but the state would fit is refused."""
    params, work = 1_720_574_976, big_job("Qwen3-1.7B", algorithm="grpo", prompts=4, engine=Engine(recompute="full"))
    small, large = (topology([(Kind("G", 284e12, 1435e9, gib * 2**30), 1)]) for gib in (40, 60))
    error = refusal(work, small)
    assert rules(error) == [("memory", "m0.0")]
    assert "beside actor_training.optimizer (19.2 GiB)" in error.message
    memory = plan(work, large).prediction.memory["m0.0"]
    assert memory.resident["actor_training.optimizer"] == 12 * params
    assert memory.peak_bytes == sum(memory.resident.values()) + max(memory.working.values())
    assert memory.peak_bytes - 12 * params < 0.9 * 40 * 2**30 < memory.peak_bytes


def test_host_memory_is_named_when_it_is_what_ran_out_and_for_which_phase() -> None:
    """Host memory, not GPU memory, ran out when roles were offloaded: state of 18 bytes a parameter waits there for each training."""
    work = big_job("Qwen3-8B", algorithm="ppo", prompts=8, engine=Engine(recompute="full", offload=True))
    error = refusal(work, topology([(A100, 4)], host=32 * 2**30))
    assert rules(error) == [("host_memory", "m0")]
    assert re.search(r"machine m0: host memory, [\d.]+ GiB needed of 28.8 GiB usable, most kept for actor_training outside its phase \(137.3 GiB\)",
                     error.message)  # fmt: skip


def test_host_memory_of_cpus_names_the_phase_that_needs_most() -> None:
    problem = build_problem(job("tiny-qwen3"), topology([(CPU, 3)], host=3 * 2**30))
    group = price_group(problem, GroupDraft(("rollout", "reference_inference", "actor_training"), (0, 1, 2), Cut(1, 3, 1, 4), rollout_tp=1))
    assert group is not None
    (violation,) = memory_violations(problem, compose(problem, [group]))
    assert violation.rule == "host_memory" and "most in phase rollout" in violation.message


def test_devices_of_two_worlds_are_refused() -> None:
    with pytest.raises(InputError, match="does not run on nvidia"):
        plan(job("tiny-qwen3", engine=Engine(rollout="hf")), topology([(A100, 1)]))


BREAKS: list[tuple[str, Callable[[Plan], Plan]]] = [
    ("layers", lambda p: _changed(p, "actor_training", layers=[3])),
    ("batch", lambda p: _changed(p, "actor_training", local_batch_sequences=[16, 8])),
    ("micro_batches", lambda p: _changed(p, "actor_training", local_batch_sequences=[17, 15])),
    ("same_strategy", lambda p: _changed(p, "reference_inference", micro_batch_sequences=2)),
    ("one_layout_per_group", lambda p: _changed(p, "actor_training", ranks=list(reversed(p.tasks["actor_training"].ranks)))),
    ("rollout", lambda p: _changed(p, "rollout", ranks=list(reversed(p.tasks["rollout"].ranks)))),
    ("tensor_parallel", lambda p: _changed(p, "rollout", dp=1, tp=2, local_batch_sequences=[32])),
]


def _changed(found: Plan, task: str, **fields: object) -> Plan:
    strategy = type(found.tasks[task]).model_validate(found.tasks[task].model_dump() | fields)  # type: ignore[index]
    return found.model_copy(update={"tasks": {**found.tasks, task: strategy}})


@pytest.mark.parametrize(("rule", "change"), BREAKS, ids=[name for name, _ in BREAKS])
def test_every_tampered_plan_is_caught(rule: str, change: Callable[[Plan], Plan]) -> None:
    fleet = topology([(CPU, 2)])
    found = plan(job("tiny-qwen3", constraints=Constraints(fix={"actor_training": {"dp": 2}})), fleet)
    assert broken_rules(found.problem, found.plan) == []
    assert rule in {v.rule for v in broken_rules(found.problem, change(found.plan))}


def test_a_plan_for_another_topology_is_refused() -> None:
    found = plan(job("tiny-qwen3"), topology([(CPU, 2)]))
    other = plan(job("tiny-qwen3"), topology([(CPU, 1)]))
    assert [v.rule for v in broken_rules(other.problem, found.plan)] == ["fingerprint"]
