"""Composition of an iteration, weight update, bounds, and a plan's price surviving its document."""

from __future__ import annotations

import numpy as np
import pytest

from artifacts.calibration import Calibration, Factor
from artifacts.job import Job
from artifacts.topology import Topology
from stages.schedule.cost.bounds import roofline_s
from stages.schedule.cost.iteration import PlanPrice, compose, price_group
from stages.schedule.cost.reshard import weight_update_s
from stages.schedule.documents import plan_document, prediction_document, price_plan
from stages.schedule.draft import Cut, GroupDraft, Layout
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import A100, CPU, L40S, SLOW_CPU, big_job, job, topology

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


def test_weights_come_from_the_nearest_holder_over_the_link_between() -> None:
    """Case: weight synchronisation is priced with its own links. Actor on m0 (two stages), replica on m1: Σ over stages α + bytes/β, and the write."""
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), topology([(CPU, 2), (CPU, 1)], lan=(1e-3, 1e6)))
    actor = Layout(ranks=np.array([[[0], [1]]]), layers=(2, 2), local=(32,), micro=(4,), micro_batches=8)
    rollout = Layout(ranks=np.array([[[2]]]), layers=(4,), local=(32,), micro=(32,), micro_batches=1)
    params = problem.task("rollout").model.params()
    assert weight_update_s(problem, actor=actor, rollout=rollout) == pytest.approx(2 * 1e-3 + 2 * params / 1e6 + 2 * params / 5e9)


def test_a_replica_that_holds_the_weights_fetches_nothing() -> None:
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), topology([(CPU, 1)]))
    one = Layout(ranks=np.array([[[0]]]), layers=(4,), local=(32,), micro=(4,), micro_batches=8)
    assert weight_update_s(problem, actor=one, rollout=one) == pytest.approx(2 * problem.task("rollout").model.params() / 5e9)


def test_inside_a_machine_each_device_fetches_what_its_rank_does_not_hold() -> None:
    """Actor cut in two shards, a whole replica on each of the two devices: half the weights over the link inside, all of them written."""
    problem = build_problem(job("tiny-qwen3", algorithm="grpo"), topology([(CPU, 2)]))
    actor = Layout(ranks=np.array([[[0, 1]]]), layers=(4,), local=(32,), micro=(4,), micro_batches=8)
    rollout = Layout(ranks=np.array([[[0]], [[1]]]), layers=(4,), local=(16, 16), micro=(16, 16), micro_batches=1)
    params = problem.task("rollout").model.params()
    assert weight_update_s(problem, actor=actor, rollout=rollout) == pytest.approx(5e-6 + params / 2e9 + 2 * params / 5e9)


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
