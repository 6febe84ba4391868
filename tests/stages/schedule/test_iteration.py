"""Composition of an iteration, weight update, bounds, and a plan's price surviving its document."""

from __future__ import annotations

import pytest

from artifacts.calibration import Calibration, Factor
from artifacts.catalog.engines import WeightExport
from artifacts.job import Job
from artifacts.topology import Topology
from stages.schedule.cost.bounds import roofline_s
from stages.schedule.cost.iteration import PlanPrice, compose, price_group
from stages.schedule.documents import plan_document, price_plan
from stages.schedule.draft import Cut, GroupDraft, Layout
from stages.schedule.prediction import prediction_document
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import A100, CPU, L40S, SLOW_CPU, big_job, group_price, job, layout, topology, with_engine

ACTOR = ("rollout", "reference_inference", "actor_training")
CRITIC = ("critic_inference", "critic_training")


def ppo(calibration: Calibration | None = None) -> tuple[Problem, PlanPrice]:
    """Actor's tasks on the fast machine, critic's on the slow one."""
    problem = build_problem(job("tiny-qwen3", algorithm="ppo"), topology([(CPU, 2), (SLOW_CPU, 1)]), calibration)
    groups = [price_group(problem, GroupDraft(ACTOR, (0, 1), Cut(2, 1, 1, 4), rollout_tp=1)), price_group(problem, GroupDraft(CRITIC, (2,), Cut(1, 1, 1, 4)))]
    return problem, compose(problem, [g for g in groups if g])


def test_groups_work_at_the_same_time_and_tasks_of_a_group_one_after_the_other() -> None:
    _, price = ppo()
    actor, critic = ({n: p.time_s for n, p in g.prices.items()} for g in price.groups)
    inference = max(actor["reference_inference"] + actor["actor_log_prob"], critic["critic_inference"])
    training = max(actor["actor_training"], critic["critic_training"])
    assert price.iteration_s == pytest.approx(actor["rollout"] + inference + training + price.weight_update_s)


def test_asynchronous_rollout_runs_beside_the_rest() -> None:
    fleet = topology([(A100, 4), (A100, 4)])
    prices = {}
    for mode in ("sync", "async"):
        problem = build_problem(big_job("Qwen3-0.6B", algorithm="grpo", mode=mode), fleet)
        groups = [price_group(problem, GroupDraft(("rollout",), (0, 1, 2, 3), None, rollout_tp=1)),
                  price_group(problem, GroupDraft(("reference_inference", "actor_training"), (4, 5, 6, 7), Cut(4, 1, 1, 4)))]
        prices[mode] = compose(problem, [g for g in groups if g])
    sync, asynchronous = prices["sync"], prices["async"]
    rollout, rest = sync.groups[0].rollout_s, sync.groups[1].inference_s + sync.groups[1].training_s
    assert sync.iteration_s == pytest.approx(rollout + rest + sync.weight_update_s)
    assert asynchronous.iteration_s == pytest.approx(max(rollout, rest) + sync.weight_update_s)


def test_calibration_of_every_term_scales_the_iteration_and_adds_the_overhead() -> None:
    _, plain = ppo()
    names = ["rollout", "reference_inference", "critic_inference", "actor_training", "critic_training", "actor_log_prob", "weight_update"]
    factors = [Factor(device_class=c, task=t, factor=3.0, observations=1) for c in ("cpu", "slow-cpu") for t in names]
    _, learned = ppo(Calibration(factors=factors, overhead_s=1.5, runs=1))
    assert learned.iteration_s == pytest.approx(3 * plain.iteration_s + 1.5)


def test_a_class_nobody_measured_is_taken_for_as_slow_as_its_like() -> None:
    """Seen on the fast class alone, three times as long: the slow class gets the same. GPUs say nothing of CPUs."""
    names = ["rollout", "reference_inference", "critic_inference", "actor_training", "critic_training", "actor_log_prob", "weight_update"]
    _, plain = ppo()
    _, learned = ppo(Calibration(factors=[Factor(device_class="cpu", task=t, factor=3.0, observations=1) for t in names], runs=1))
    assert learned.iteration_s == pytest.approx(3 * plain.iteration_s)
    _, other = ppo(Calibration(factors=[Factor(device_class="gpu", task=t, factor=3.0, observations=1) for t in names], runs=1))
    assert other.iteration_s == plain.iteration_s
    mixed = Calibration(factors=[Factor(device_class=c, task="rollout", factor=f, observations=1, evidence=e)
                                 for c, f, e in (("a", 2.0, 100.0), ("b", 16.0, 50.0))], runs=2)
    assert mixed.factor(task="rollout", device_class="c", alike={"a", "b", "c"}) == pytest.approx(4.0)
    assert mixed.factor(task="rollout", device_class="b", alike={"a", "b", "c"}) == 16.0


def update_s(problem: Problem, *, actor: Layout, rollout: Layout) -> float:
    """The kernel's seconds of one weight update, the two in groups of their own; without what the host does with each tensor."""
    problem = with_engine(problem, export=WeightExport())
    return compose(problem, [group_price(problem, actor_training=actor), group_price(problem, rollout=rollout)]).weight_update_s


def test_weights_come_from_the_nearest_holder_over_the_link_between() -> None:
    """Actor on m0 (two stages), replica on m1: Σ over stages α + bytes/β, and the write."""
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), topology([(CPU, 2), (CPU, 1)], lan=(1e-3, 1e6)))
    actor, rollout = layout([[[0], [1]]], (2, 2), (32,), (4,), 8), layout([[[2]]], (4,), (32,))
    params = problem.task("rollout").model.params()
    assert update_s(problem, actor=actor, rollout=rollout) == pytest.approx(2 * 1e-3 + 2 * params / 1e6 + 2 * params / 5e9)


def test_stages_tell_each_other_every_tensor_there_and_back() -> None:
    """35 tensors; the slow host takes three times as long. Only the way between the stages counts, twice for each collective."""
    fleet = topology([(CPU, 1), (SLOW_CPU, 1), (CPU, 1)], lan=(0.02, 1e9))
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), fleet)
    rollout = group_price(problem, rollout=layout([[[2]]], (4,), (32,)))

    def seconds(actor: Layout, **export: float) -> float:
        costly = with_engine(problem, export=WeightExport.model_validate(export), host_flops_per_s=CPU.flops)
        free = with_engine(problem, export=WeightExport())
        costs, nothing = (compose(p, [group_price(p, actor_training=actor), rollout]).weight_update_s for p in (costly, free))
        return costs - nothing

    stages, whole = layout([[[0], [1]]], (2, 2), (32,), (4,), 8), layout([[[0]], [[1]]], (4,), (16, 16), (4, 4), 4)
    slow = CPU.flops / SLOW_CPU.flops
    assert problem.task("actor_training").model.weight_tensors() == 35 and slow > 1
    assert seconds(stages, tensor_s=0.01, collectives=7, collective_s=0.001) == pytest.approx(35 * (slow * 0.01 + 7 * (slow * 0.001 + 2 * 0.02)))
    assert seconds(whole, tensor_s=0.01, collectives=7, collective_s=0.001) == pytest.approx(35 * slow * 0.01)


def test_a_near_replica_of_the_actor_serves_where_there_is_one() -> None:
    """Replicas of the actor in both regions, generation in the second: the wide link carries nothing."""
    fleet = topology([(CPU, 1), (CPU, 1), (CPU, 1)], regions=["a", "b", "b"], lan=(1e-3, 1e7), wan=(1, 1e3))
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), fleet)
    actor, rollout = layout([[[0]], [[1]]], (4,), (16, 16), (4, 4), 4), layout([[[2]]], (4,), (32,))
    params = problem.task("rollout").model.params()
    assert update_s(problem, actor=actor, rollout=rollout) == pytest.approx(1e-3 + 2 * params / 1e7 + 2 * params / 5e9)


def test_the_one_sender_s_port_bounds_many_engines() -> None:
    """Case: weights sent from one machine to many engines. Three machines fetch the whole model from m0, whose port is one link's."""
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), topology([(CPU, 1)] * 4, lan=(1e-3, 1e6)))
    actor, rollout = layout([[[0]]], (4,), (32,), (4,), 8), layout([[[1]], [[2]], [[3]]], (4,), (12, 10, 10))
    params = problem.task("rollout").model.params()
    assert update_s(problem, actor=actor, rollout=rollout) == pytest.approx(3 * 2 * params / 1e6)


def test_a_replica_over_two_machines_brings_each_its_half() -> None:
    problem = build_problem(big_job("Qwen3-0.6B", algorithm="grpo"), topology([(A100, 1)] * 3, lan=(1e-3, 1e9)))
    actor, rollout = layout([[[0]]], (28,), (512,), (4,), 128), layout([[[1, 2]]], (28,), (512,))
    params = problem.task("rollout").model.params()
    assert update_s(problem, actor=actor, rollout=rollout) == pytest.approx(2 * params / 1e9)


def test_two_senders_bring_their_stages_at_once() -> None:
    """Over links of their own, of 1e6 and 3e6 B/s, as long as the receiver's port (3e6) takes both."""
    fleet = topology([(CPU, 1)] * 3, lan=(1e-3, 1e6))
    links = [k.model_copy(update={"bandwidth_bytes_per_s": 3e6}) if (k.source, k.target) == ("m1", "m2") else k for k in fleet.links]
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), fleet.model_copy(update={"links": links}))
    actor, rollout = layout([[[0], [1]]], (2, 2), (32,), (4,), 8), layout([[[2]]], (4,), (32,))
    task = problem.task("actor_training").model
    first, last = (2 * task.stage_params(layers=2, first=j == 0, last=j == 1) for j in range(2))
    written = 2 * task.params() / CPU.hbm
    expected = max(1e-3 + first / 1e6, 1e-3 + last / 3e6, (first + last) / 3e6)
    assert update_s(problem, actor=actor, rollout=rollout) == pytest.approx(expected + written)


def test_a_replica_that_holds_the_weights_fetches_nothing() -> None:
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), topology([(CPU, 1)]))
    one = layout([[[0]]], (4,), (32,), (4,), 8)
    assert update_s(problem, actor=one, rollout=one) == pytest.approx(2 * problem.task("rollout").model.params() / 5e9)


def test_inside_a_machine_each_device_fetches_what_its_rank_does_not_hold() -> None:
    """Actor cut in two shards, a whole replica on each of the two devices: half the weights over the link inside, all of them written."""
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), topology([(CPU, 2)]))
    actor, rollout = layout([[[0, 1]]], (4,), (32,), (4,), 8), layout([[[0]], [[1]]], (4,), (16, 16))
    params = problem.task("rollout").model.params()
    assert update_s(problem, actor=actor, rollout=rollout) == pytest.approx(5e-6 + params / 2e9 + 2 * params / 5e9)


@pytest.mark.parametrize(("work", "fleet"), [
    (job("tiny-qwen3", algorithm="ppo"), topology([(CPU, 2), (SLOW_CPU, 1)])),
    (big_job("Qwen3-0.6B", algorithm="ppo"), topology([(A100, 2), (L40S, 1)])),
])
def test_no_plan_beats_the_roofline(work: Job, fleet: Topology) -> None:
    problem = build_problem(work, fleet)
    price = compose(problem, [g for g in [price_group(problem, GroupDraft(ACTOR + CRITIC, (0, 1, 2), Cut(1, 3, 1, 4), rollout_tp=1))] if g])
    assert 0 < roofline_s(problem) < price.iteration_s


def test_a_plan_keeps_its_price_as_a_document() -> None:
    problem, price = ppo()
    plan = plan_document(problem, price, solver="by hand", idle={}, reasons={})
    again = price_plan(problem, plan)
    assert again is not None
    assert again.iteration_s == pytest.approx(price.iteration_s, rel=1e-12)
    prediction = prediction_document(problem, plan, price)
    published = prediction_document(problem, plan, price, fidelity="paper")
    assert prediction.paper_s == {"iteration": published.iteration_time_s, **{n: t.time_s for n, t in published.tasks.items()}}
    assert not published.paper_s
    by_task = {name: t.time_s for name, t in prediction.tasks.items()}
    assert set(by_task) == set(problem.job.tasks())
    assert all(sum(t.terms.values()) == pytest.approx(t.time_s) for t in prediction.tasks.values())
    last = max(prediction.tasks.values(), key=lambda t: t.start_s + t.time_s)
    assert last.start_s + last.time_s + prediction.other_s["weight_update"] == pytest.approx(prediction.iteration_time_s)
    assert prediction.throughput_samples_per_s == pytest.approx(32 / price.iteration_s)
    assert all(m.peak_bytes <= m.usable_bytes for m in prediction.memory.values())


def test_host_memory_is_the_devices_memory_on_a_cpu() -> None:
    """Three CPU devices of 8 GiB in a machine of 3 GiB: each fits by itself, together they do not."""
    problem = build_problem(job("tiny-qwen3"), topology([(CPU, 3)], host=3 * 2**30))
    group = price_group(problem, GroupDraft(ACTOR, (0, 1, 2), Cut(1, 3, 1, 4), rollout_tp=1))
    assert group is not None and group.overflow == 0
    assert not compose(problem, [group]).feasible
