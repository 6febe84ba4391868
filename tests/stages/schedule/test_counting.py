"""The size of the search space: what the formulas count, one by one on small fleets."""

from __future__ import annotations

from itertools import product

import pytest

from artifacts.job import Constraints, Job
from artifacts.topology import Topology
from stages.schedule.counting import bell, count_levels
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.space import groupings
from tests.stages.schedule.brute_force import everything
from tests.stages.schedule.builders import A100, CPU, L4, L40S, big_job, job, topology

SMALL = big_job("Qwen3-0.6B", algorithm="grpo", prompts=6, micro=1)
PINNED = SMALL.model_copy(update={"constraints": Constraints(pin={"actor_training": ["m0"]})})
CASES = {
    "two kinds": (SMALL, topology([(A100, 2), (L4, 1)])),
    "ppo": (big_job("Qwen3-0.6B", algorithm="ppo", prompts=6, micro=1), topology([(A100, 2), (L4, 2)])),
    "async": (SMALL.model_copy(update={"mode": "async"}), topology([(A100, 2), (L40S, 2)])),
    "a task is pinned": (PINNED, topology([(A100, 2), (L4, 2)])),
    "few devices": (PINNED.model_copy(update={"constraints": Constraints(max_devices=3)}), topology([(A100, 2), (L4, 2)])),
    "one group on CPUs": (job("tiny-qwen3", micro=1), topology([(CPU, 3)])),
}


@pytest.mark.parametrize(("work", "fleet"), CASES.values(), ids=CASES.keys())
def test_every_level_is_what_enumeration_finds(work: Job, fleet: Topology) -> None:
    problem = build_problem(work, fleet)
    sizes, vectors, choices, strategies, plans = set(), set(), set(), set(), set()
    cell = {d: (problem.fleet.machine[d], problem.fleet.device_class[d]) for d in range(problem.fleet.size)}
    for draft in everything(problem):
        named = [(g.tasks, g.devices, g.cut and (g.cut.dp, g.cut.pp, g.cut.tp), g.rollout_tp) for g in draft.groups]
        strategies.add(frozenset((t, frozenset(d), c, r) for t, d, c, r in named))
        plans.add(frozenset(named))
    for label in _labelled(problem):
        choices.add(label)
        sizes.add(frozenset((t, len(d)) for t, d in label))
        vectors.add(frozenset((t, tuple(sorted(map(str, (cell[x] for x in d))))) for t, d in label))
    counted = [int(level.count) for level in count_levels(problem)]
    assert counted == [bell(len(problem.tasks)), len(groupings(problem)), len(sizes), len(vectors), len(choices), len(strategies), len(plans)]


def _labelled(problem: Problem) -> set[frozenset[tuple[tuple[str, ...], frozenset[int]]]]:
    """A group or idleness for every device."""
    found = set()
    for grouping in groupings(problem):
        for labels in product(range(-1, len(grouping)), repeat=problem.fleet.size):
            groups = [(t, frozenset(d for d, label in enumerate(labels) if label == g)) for g, t in enumerate(grouping)]
            if sum(len(d) for _, d in groups) <= problem.most_devices and all(devices and all(problem.allowed[t][d] for t in tasks for d in devices) for tasks, devices in groups):
                found.add(frozenset(groups))
    return found


def test_bell_numbers() -> None:
    assert [bell(n) for n in range(1, 7)] == [1, 2, 5, 15, 52, 203]


def test_each_level_multiplies_the_one_before_and_large_fleets_are_counted() -> None:
    levels = count_levels(build_problem(big_job("Qwen3-8B"), topology([(A100, 8)] * 3 + [(L40S, 8)] * 3 + [(L4, 8)] * 2)))
    assert all(level.exact for level in levels) and len(levels[-1].count) == 96
    logs = [level.log10 for level in levels[1:]]
    assert logs == sorted(logs)


def test_the_approximation_of_large_fleets_agrees_with_the_exact_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    work = big_job("Qwen3-8B", constraints=Constraints(max_devices=13))
    problem = build_problem(work, topology([(A100, 8)] * 2))
    exact = count_levels(problem)
    monkeypatch.setattr("stages.schedule.counting.MOST_STEPS", 0)
    about = count_levels(problem)
    assert not about[-1].exact and not about[-2].exact
    assert [a.log10 for a in about] == pytest.approx([e.log10 for e in exact], abs=1e-6)


