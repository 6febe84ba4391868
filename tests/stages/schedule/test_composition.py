"""The iteration of a plan against the best order of its tasks, by trying every order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.schedule.cost.iteration import compose
from stages.schedule.problem import ACTOR_LOG_PROB, build_problem
from tests.stages.schedule.builders import A100, L40S, group_price, job, topology
from tests.stages.schedule.random_problems import random_group

Before = Mapping[str, Sequence[str]]


def makespan(order: Sequence[str], seconds: Mapping[str, float], group: Mapping[str, int], before: Before) -> float | None:
    """End of the last task if each starts when what it needs has ended and its group is free, in this order; None if the order breaks a need."""
    ends: dict[str, float] = {}
    free: dict[int, float] = {}
    for task in order:
        if any(need not in ends for need in before[task]):
            return None
        start = max([free.get(group[task], 0.0), *(ends[need] for need in before[task])])
        ends[task] = free[group[task]] = start + seconds[task]
    return max(ends.values())


def best_makespan(seconds: Mapping[str, float], group: Mapping[str, int], before: Before) -> float:
    return min(s for order in permutations(seconds) if (s := makespan(order, seconds, group, before)) is not None)


def needs(tasks: Sequence[str], *, rollout_first: bool) -> Before:
    """Inference needs the responses, training the results of all inference; asynchronously the responses are those of an earlier iteration."""
    inference = [t for t in tasks if t.endswith("_inference") or t == ACTOR_LOG_PROB]
    found: dict[str, Sequence[str]] = {"rollout": []}
    found |= {t: ["rollout"] if rollout_first else [] for t in inference}
    return found | {t: inference for t in tasks if t.endswith("_training")}


def test_the_brute_force_itself() -> None:
    """Two groups: 1 works 2 + 3 after a barrier at 4 that the other group sets."""
    before = {"rollout": [], "a_inference": ["rollout"], "b_inference": ["rollout"], "a_training": ["a_inference", "b_inference"]}
    seconds = {"rollout": 1.0, "a_inference": 2.0, "b_inference": 3.0, "a_training": 5.0}
    assert best_makespan(seconds, {"rollout": 0, "a_inference": 0, "b_inference": 1, "a_training": 0}, before) == 1 + 3 + 5
    assert best_makespan(seconds, dict.fromkeys(seconds, 0), before) == 1 + 2 + 3 + 5


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["sync", "async"]), st.sampled_from(["grpo", "ppo"]), st.integers(0, 2**32), st.data())
def test_an_iteration_is_the_best_order_of_its_tasks(mode: str, algorithm: str, seed: int, data: st.DataObject) -> None:
    """Rollout, all inference, all training: nothing is gained by any other order. Asynchronous rollout has a group of its own, as it must."""
    problem = build_problem(job("tiny-qwen3", algorithm=algorithm, mode=mode), topology([(A100, 3), (L40S, 3), (A100, 3)]))
    random = Random(seed)
    members: dict[int, list[str]] = {}
    for task in problem.tasks:
        g = 3 if mode == "async" and task.name == "rollout" else data.draw(st.integers(0, 2), label=task.name)
        members.setdefault(g, []).append(task.name)
    devices = {0: [0, 1], 1: [2, 3, 4], 2: [5, 6], 3: [7, 8]}
    priced = [group_price(problem, **random_group(problem, random, names, devices[g])) for g, names in members.items()]
    plan = compose(problem, priced)
    seconds = {name: price.time_s for g in priced for name, price in g.prices.items()}
    group = {name: g for g, price in enumerate(priced) for name in price.prices}
    before = needs(list(seconds), rollout_first=mode == "sync")
    assert plan.iteration_s - plan.weight_update_s == pytest.approx(best_makespan(seconds, group, before))
