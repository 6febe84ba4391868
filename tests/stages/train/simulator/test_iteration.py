"""Whole iterations of random plans on small mixed fleets: the invariants, what waits for what, the roofline, one case by hand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.catalog import models
from artifacts.catalog.engines import WeightExport
from artifacts.errors import InfeasiblePlan
from artifacts.job import Engine, Job
from artifacts.plan import Group, Plan, Strategy
from artifacts.throughput import Iteration
from artifacts.topology import Topology
from stages.schedule.cost.bounds import roofline_s
from stages.schedule.problem import build_problem
from stages.train.engines.simulator.graph import Played
from stages.train.engines.simulator.iteration import Iterations, build
from stages.train.engines.simulator.log import lines
from stages.train.engines.simulator.rollout import check_cache
from stages.train.engines.simulator.setting import Setting, setting_of
from tests.benchmarks.random_plans import random_plans
from tests.stages.schedule.builders import A100, CPU, L4, L40S, job, topology
from tests.stages.train.simulator.invariants import assert_all

FLEET = topology([(A100, 4), (A100, 2), (L40S, 4), (L4, 1), (L4, 1)], regions=["east", "east", "west", "west", "west"])
MODES = [("ppo", "sync"), ("ppo", "async"), ("grpo", "sync"), ("grpo", "async")]


@cache
def small_job(algorithm: str, mode: str, *, mean: bool = False, seed: int = 0, staleness: int = 1) -> Job:
    """24 prompts × 4 responses in two mini-batches. ``mean``: lengths vary below their maxima."""
    short = 0.6 if mean else 1.0
    return job("Qwen3-1.7B", algorithm=algorithm, mode=mode, prompts=24, responses=4, mini=12, micro=4, prompt=(short * 200, 200),
               response=(short * 300, 300), engine=Engine(recompute="full"), seed=seed, staleness=staleness)


@dataclass(frozen=True, eq=False)
class Case:
    setting: Setting
    made: Iterations
    played: Played
    log: list[Iteration]


@cache
def case(algorithm: str, mode: str, number: int, *, mean: bool = False, count: int = 2, staleness: int = 1) -> Case:
    """A random plan that fits, played with a record of rates."""
    work = small_job(algorithm, mode, mean=mean, staleness=staleness)
    _, plan = next(random_plans(small_job(algorithm, mode), FLEET, seed=number))
    setting = setting_of(work, FLEET, plan.model_copy(update={"job": work.identity()}))
    check_cache(setting)
    made = build(setting, first=0, count=count)
    played = made.graph.play(record=True)
    return Case(setting, made, played, lines(setting, made, played))


def test_the_plans_meet_on_links_and_trunks() -> None:
    """What the invariants are checked on is not empty: flows that share, between regions too."""
    shared = trunks = 0
    for mode, number in product(MODES, range(10)):
        c = case(*mode, number)
        flows = [f for bundle in c.made.graph.flows for f in bundle]
        alone = [min((c.made.graph.capacity[r] for r in f.route), default=0.0) for f in flows]
        shared += any(0 < rate < 0.9 * alone[f] for _, f, rate in c.played.rates)
        trunks += any(c.setting.network.names[r].startswith("trunk") for f in flows for r in f.route)
    assert shared >= 5 and trunks >= 20


def when(c: Case) -> dict[tuple[str, int], tuple[float, float]]:
    """(task, batch) → first start, last end."""
    found: dict[tuple[str, int], list[float]] = defaultdict(lambda: [np.inf, 0.0])
    for i, label in enumerate(c.made.graph.labels):
        span = found[label.task, label.batch]
        span[:] = [min(span[0], c.played.start[i]), max(span[1], c.played.end[i])]
    return {key: (a, b) for key, (a, b) in found.items()}


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODES), st.integers(0, 40), st.booleans())
def test_invariants_of_random_plans(mode: tuple[str, str], number: int, mean: bool) -> None:
    c = case(*mode, number, mean=mean)
    assert_all(c.made.graph, c.played)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODES), st.integers(0, 40))
def test_no_iteration_beats_the_roofline(mode: tuple[str, str], number: int) -> None:
    """The bound is the scheduler's: every FLOP and byte over all devices at their best, nothing communicated."""
    c = case(*mode, number)
    bound = roofline_s(build_problem(c.setting.job, FLEET))
    assert all(line.time_s >= bound for line in c.log)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(MODES), st.integers(0, 40), st.booleans())
def test_tasks_wait_for_what_they_need(mode: tuple[str, str], number: int, mean: bool) -> None:
    c = case(*mode, number, mean=mean)
    at = when(c)
    inference = ["actor_log_prob", *(t for t in c.setting.tasks if t.endswith("_inference"))]
    training = [t for t in c.setting.tasks if t.endswith("_training")]
    for b in c.made.ends:
        for task in inference:
            assert at[task, b][0] >= at["rollout", b][1]
            assert all(at[t, b][0] >= at[task, b][1] for t in training)
        assert at["weight_update", b][0] >= at["actor_training", b][1]
        if mode[1] == "sync":
            assert at["rollout", b + 1][0] >= at["weight_update", b][1] if b + 1 in c.made.ends else True


@pytest.mark.parametrize("staleness", [1, 2])
def test_asynchronous_rollout_runs_ahead_by_the_staleness_and_no_more(staleness: int) -> None:
    c = case("grpo", "async", 3, count=5, staleness=staleness)
    at = when(c)
    for b in range(staleness + 1, 5):
        assert at["rollout", b][0] >= at["weight_update", b - staleness - 1][1], "generated with weights that are too old"
    assert [line.staleness for line in c.log] == [float(min(b, staleness)) for b in range(5)]
    assert any(at["rollout", b + 1][0] < at["actor_training", b][1] and at["rollout", b + 1][1] > at["actor_log_prob", b][0] for b in range(4))


def test_an_asynchronous_iteration_takes_as_long_as_its_slower_half_and_the_update() -> None:
    c = case("grpo", "async", 3, count=5)
    steady, at = c.log[-1], when(c)
    b = steady.step - 1
    rest = at["actor_training", b][1] - min(at[t, b][0] for t in ("actor_log_prob", "reference_inference"))
    rollout = at["rollout", b + 1][1] - at["rollout", b + 1][0]
    assert steady.time_s == pytest.approx(max(rest, rollout) + steady.by_task_s["weight_update"], rel=1e-6)


def test_a_synchronous_line_adds_up_and_is_the_same_for_the_same_seed() -> None:
    c = case("ppo", "sync", 5, mean=True)
    assert sum(line.time_s for line in c.log) == pytest.approx(float(c.played.end.max()))
    again = build(c.setting, first=0, count=2)
    assert lines(c.setting, again, again.graph.play()) == c.log
    other = setting_of(small_job("ppo", "sync", mean=True, seed=1), FLEET, c.setting.plan)
    made = build(other, first=0, count=1)
    assert lines(other, made, made.graph.play())[0].tokens != c.log[0].tokens


def test_all_sequences_and_tokens_are_worked_on() -> None:
    c = case("ppo", "sync", 5, mean=True)
    for line in c.log:
        for task, replicas in line.replicas.items():
            assert sum(r.sequences for r in replicas) == 96, task
            assert sum(r.tokens for r in replicas) == line.tokens, task
            assert all(r.time_s <= line.by_task_s[task] + 1e-9 for r in replicas)


def lone_plan(work: Job, fleet: Topology) -> Plan:
    """Everything on one device."""
    [device] = [d.id for d in fleet.devices]
    layers, tasks = work.model("actor").layers, work.tasks()
    strategy = Strategy(dp=1, pp=1, tp=1, layers=[layers], ranks=[device], local_batch_sequences=[work.batch.sequences], micro_batch_sequences=4)
    return Plan(job=work.identity(), topology_fingerprint=fleet.fingerprint, groups=[Group(name="all", tasks=tasks, devices=[device])],
                tasks={t: strategy.model_copy(update={"micro_batch_sequences": 32}) if t == "rollout" else strategy for t in tasks})


def test_one_device_by_hand() -> None:
    """Qwen3-0.6B on one A100, full recomputation: training is four passes over the layers and three of the head, inference one."""
    work = job("Qwen3-0.6B", prompts=8, responses=4, prompt=(512, 512), response=(512, 512), engine=Engine(recompute="full"))
    fleet, m = topology([(A100, 1)]), models()["Qwen3-0.6B"]
    setting = setting_of(work, fleet, lone_plan(work, fleet))
    made = build(setting, first=0, count=1)
    [line] = lines(setting, made, made.graph.play())
    tokens = 32 * 1024
    layers = m.layers * (2 * (m.layer_params() - 2 * m.hidden - 2 * m.head_dim) * tokens + 32 * 2 * m.heads * m.head_dim * 1024**2)
    head = 2 * m.hidden * m.vocab * tokens
    update = m.params() * 30 / A100.hbm
    q, kv = m.heads * m.head_dim, m.kv_heads * m.head_dim
    moved = m.layers * tokens * (10 * m.hidden + 3 * m.intermediate + 2 * (q + kv)) * 2 / A100.hbm
    forward, launching = layers / A100.flops + moved, 8 * m.layers * setting.engine.launch_layer_s
    assert forward < launching and 2 * launching < 3 * forward, "the host is slower forward, the device backward"
    trained = launching + 3 * forward + 3 * head / A100.flops + 44 * m.vocab * tokens / A100.hbm + update
    assert line.by_task_s["actor_training"] == pytest.approx(trained, rel=1e-6)
    inferred = launching + head / A100.flops + 30 * m.vocab * tokens / A100.hbm
    assert line.by_task_s["reference_inference"] == pytest.approx(inferred, rel=1e-6)
    cache, weights = m.layers * 2 * m.kv_heads * m.head_dim * 2, (m.layers * m.layer_params() + m.vocab * m.hidden) * 2
    host = setting.engine.rollout.host
    decode = sum((weights + 32 * context * cache) / A100.hbm + host.gap_s + 32 * host.sequence_s for context in range(513, 1024))
    prefill = line.by_task_s["rollout"] - decode
    computed = (m.layers * (2 * (m.layer_params() - 2 * m.hidden - 2 * m.head_dim) * 32 * 512 + 32 * 2 * m.heads * m.head_dim * 512**2)
                + 2 * m.hidden * m.vocab * 32) / A100.flops
    computed += m.layers * 32 * 512 * (10 * m.hidden + 3 * m.intermediate + 2 * (q + kv)) * 2 / A100.hbm
    assert prefill == pytest.approx(computed, rel=0.2), "two chunks of 8192 tokens; the first half decodes beside the second"
    assert line.by_task_s["weight_update"] == pytest.approx(m.params() * 2 / A100.hbm, rel=1e-6)


def test_stages_tell_each_other_every_tensor_there_and_back() -> None:
    work, fleet = job("tiny-qwen3"), topology([(CPU, 1), (CPU, 1)], lan=(0.02, 1e9))
    [plan] = [p for _, p in islice(random_plans(work, fleet, seed=0), 40) if p.tasks["actor_training"].pp == 2][:1]
    setting = setting_of(work, fleet, plan)
    engine = setting.engine.model_copy(update={"export": WeightExport(tensor_s=0.01, collectives=7, collective_s=0.001), "host_flops_per_s": CPU.flops})
    costly, free = (replace(setting, engine=engine.model_copy(update={"export": e})) for e in (engine.export, WeightExport()))
    took = []
    for one in (costly, free):
        made = build(one, first=0, count=1)
        took.append(lines(one, made, made.graph.play())[0].by_task_s["weight_update"])
    assert setting.tasks["actor_training"].model.weight_tensors() == 35
    assert took[0] - took[1] == pytest.approx(35 * (0.01 + 7 * (0.001 + 2 * 0.02)), rel=1e-6)


@pytest.mark.parametrize(("change", "message"), [
    ({"layers": [27]}, "stages of 27 layers, Qwen3-0.6B has 28"),
    ({"local_batch_sequences": [31]}, "shares of 31 sequences, the batch has 32"),
])
def test_what_is_no_plan_of_the_job_is_refused_by_name(change: dict[str, list[int]], message: str) -> None:
    work = job("Qwen3-0.6B", prompts=8, responses=4)
    fleet = topology([(A100, 1)])
    plan = lone_plan(work, fleet)
    broken = plan.tasks["actor_training"].model_copy(update=change)
    with pytest.raises(InfeasiblePlan, match=message):
        setting_of(work, fleet, plan.model_copy(update={"tasks": {**plan.tasks, "actor_training": broken}}))


def test_a_replica_without_room_for_one_sequence_is_refused() -> None:
    work = job("Qwen3-8B", prompts=8, responses=4, prompt=(1024, 1024), response=(1024, 1024))
    fleet = topology([(L4, 1)])
    with pytest.raises(InfeasiblePlan, match="rollout replica 0 has room for the keys and values of 0 tokens"):
        check_cache(setting_of(work, fleet, lone_plan(work, fleet)))


def test_offloaded_roles_move_in_and_out() -> None:
    work = job("Qwen3-0.6B", prompts=8, responses=4, engine=Engine(recompute="full", offload=True))
    fleet, m = topology([(A100, 1)]), models()["Qwen3-0.6B"]
    setting = setting_of(work, fleet, lone_plan(work, fleet))
    made = build(setting, first=0, count=1)
    played = made.graph.play()
    moved = {label.task: 25e9 * (end - start) for label, start, end in zip(made.graph.labels, played.start, played.end, strict=True)
             if label.what == "move in"}
    assert moved["rollout"] == pytest.approx(2 * m.params(), rel=1e-6)
    assert moved["actor_training"] == pytest.approx((2 + 4 + 12) * m.params(), rel=1e-6)
