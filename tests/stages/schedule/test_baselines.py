"""The baselines: each keeps to its own method, and finds the best plan that method can name."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from itertools import permutations
from math import comb, factorial
from pathlib import Path

import pytest

from artifacts.errors import InputError
from artifacts.job import Job
from artifacts.topology import Topology
from stages.schedule.draft import Draft
from stages.schedule.legality import broken_rules
from stages.schedule.parameters import ScheduleParameters, SolverName
from stages.schedule.problem import build_problem
from stages.schedule.search.baselines.mean_device import degrees_of, mean_topology
from stages.schedule.search.baselines.streamrl import streamrl
from stages.schedule.search.baselines.verl import verl
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.random_search import Arrangements
from stages.schedule.search.space import cuts, draft_group, groupings, rollout_tps
from stages.schedule.solve import Solution, solve
from stages.schedule.variant import evenly
from tests.stages.schedule.builders import A100, CPU, L4, L40S, big_job, job, topology

MIXED = topology([(A100, 4), (L40S, 4), (L4, 4)], regions=["west", "west", "east"])
BASELINES: list[SolverName] = ["verl", "streamrl", "deap", "random"]


def found_by(solver: SolverName, work: Job, fleet: Topology = MIXED, *, evaluations: int = 1500, seed: int = 0) -> Solution:
    return solve(work, fleet, parameters=ScheduleParameters(solver=solver, evaluations=evaluations, seed=seed))


@pytest.mark.parametrize("solver", BASELINES)
@pytest.mark.parametrize(("algorithm", "mode"), [("ppo", "sync"), ("grpo", "async")])
def test_a_baseline_makes_a_legal_plan_deterministically_and_the_default_is_no_worse(solver: SolverName, algorithm: str, mode: str) -> None:
    work = big_job("Qwen3-1.7B", algorithm=algorithm, mode=mode)
    first, again = found_by(solver, work), found_by(solver, work)
    assert broken_rules(first.problem, first.plan) == [] and first.search.solver == solver
    assert first.plan == again.plan
    # an evaluation of auto's takes about a fifteenth of another solver's time
    best = found_by("auto", work, evaluations=15 * 1500).prediction
    assert best.iteration_time_s <= first.prediction.iteration_time_s


@pytest.mark.parametrize("solver", ["verl", "streamrl"])
def test_layers_and_batches_are_equal_everywhere(solver: SolverName) -> None:
    plan = found_by(solver, big_job("Qwen3-1.7B", algorithm="ppo", mode="async")).plan
    for strategy in plan.tasks.values():
        assert len(set(strategy.layers)) == 1
        assert max(strategy.local_batch_sequences) - min(strategy.local_batch_sequences) <= 1


def test_the_mean_fleet_keeps_its_places_and_totals() -> None:
    mean = mean_topology(MIXED)
    assert [d.id for d in mean.devices] == [d.id for d in MIXED.devices] and mean.machines == MIXED.machines
    for what in ("memory_bandwidth_bytes_per_s", "achieved_flops_per_s"):
        rates = {getattr(d, what).value for d in mean.devices}
        assert len(rates) == 1 and rates.pop() * 12 == pytest.approx(sum(getattr(d, what).value for d in MIXED.devices))
    inside, between = ({(k.latency_s, k.bandwidth_bytes_per_s) for k in mean.links if (k.source == k.target) == here} for here in (True, False))
    assert len(inside) == len(between) == 1 and inside != between


def test_on_equal_devices_verl_finds_the_best_plan_of_its_kind() -> None:
    """Where its assumption holds: no grouping with every device dealt in rank order and equally cut beats what it returns."""
    work, fleet = big_job("Qwen3-1.7B", algorithm="grpo", prompts=8), topology([(A100, 4)])
    problem = evenly(build_problem(work, fleet))
    evaluator = Evaluator(problem, Budget(10**9))
    verl(evaluator)
    best = float("inf")
    judge = Evaluator(problem, Budget(10**9))
    for grouping in groupings(problem):
        for order in permutations(grouping):
            for first in range(1, 4) if len(order) == 2 else [4]:
                if len(order) == 3:
                    continue
                parts = [tuple(range(first)), tuple(range(first, 4))][: len(order)]
                ways = [[draft_group(problem, t, p, c, r) for c in (cuts(problem, t, p, thorough=True) if t != ("rollout",) else [None])
                         for r in (rollout_tps(problem, len(p)) if "rollout" in t else [0])] for t, p in zip(order, parts, strict=True)]
                prices = [[g for d in options if (g := judge.group(d)) is not None and g.overflow <= 0] for options in ways]
                if all(prices):
                    phases = [max(min(g.phases[x] for g in p) for p in prices) for x in range(3)]
                    best = min(best, sum(phases))
    assert evaluator.best is not None and evaluator.best.iteration_s <= best * 1.001 + evaluator.best.weight_update_s


def test_verl_falls_back_to_degrees_that_fit_the_true_memory() -> None:
    """On the mean of 80 and 23 GiB one shard holds more than the small devices can."""
    found = found_by("verl", big_job("Qwen3-4B", algorithm="grpo"), topology([(A100, 4), (L4, 4)]))
    assert broken_rules(found.problem, found.plan) == []


def test_streamrl_splits_at_a_region_boundary() -> None:
    plan = found_by("streamrl", big_job("Qwen3-1.7B", algorithm="ppo", mode="async")).plan
    assert {frozenset(g.tasks) for g in plan.groups} >= {frozenset({"rollout"})} and len(plan.groups) == 2
    sides = [{MIXED.machine(d.split(".")[0]).region for d in g.devices} for g in plan.groups]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_streamrl_ends_with_the_best_of_all_its_splits(mode: str) -> None:
    """Every split of the data centres with every number of machines on each side, priced: what it left out was no better."""
    problem = evenly(build_problem(big_job("Qwen3-1.7B", algorithm="grpo", mode=mode, prompts=8), topology([(A100, 2), (L40S, 2), (L4, 2)], regions=["west", "west", "east"])))
    evaluator = Evaluator(problem, Budget(10**9))
    streamrl(evaluator)
    judge, best = Evaluator(problem, Budget(10**9)), float("inf")
    machines = [tuple(i for i, d in enumerate(problem.fleet.devices) if d.machine == name) for name in ("m0", "m1", "m2")]
    tasks = (("rollout",), tuple(t.name for t in problem.tasks if t.name != "rollout"))
    for first, second in [((0,), (2,)), ((0, 1), (2,)), ((2,), (0,)), ((2,), (0, 1))]:
        sides = [tuple(d for m in side for d in machines[m]) for side in (first, second)]
        ways = [[draft_group(problem, t, side, cut, tp) for cut, tp in degrees_of(problem, t, side)] for t, side in zip(tasks, sides, strict=True)]
        made = [[d for d in options if (g := judge.group(d)) is not None and g.overflow <= 0] for options in ways]
        prices = [judge.plan(Draft(groups=(a, b))) for a in made[0] for b in made[1]]
        best = min([best, *(p.cost for p in prices if p is not None and p.feasible)])
    assert evaluator.best is not None and evaluator.best.cost <= best + evaluator.best.weight_update_s


def test_streamrl_splits_by_type_in_one_region_and_never_mixes_where_it_need_not() -> None:
    plan = found_by("streamrl", big_job("Qwen3-1.7B", algorithm="grpo", mode="async"), topology([(A100, 4), (L40S, 4)])).plan
    kinds = [Counter(d.split(".")[0] for d in g.devices) for g in plan.groups]
    assert sum(len(k) > 1 for k in kinds) <= 1, "a line of devices sorted by type is cut once"


def test_streamrl_is_refused_where_the_engine_keeps_rollout_with_training() -> None:
    with pytest.raises(InputError, match="puts rollout and the rest in two groups"):
        found_by("streamrl", job("tiny-qwen3"), topology([(CPU, 2)]))


def test_deap_is_refused_where_the_library_is_missing() -> None:
    """The library taken away, in a process of its own."""
    code = ("import sys; sys.modules['deap'] = None\n"
            "from stages.schedule.solve import solve\nfrom stages.schedule.parameters import ScheduleParameters\n"
            "from artifacts.errors import InputError\nfrom tests.stages.schedule.builders import CPU, job, topology\n"
            "try:\n    solve(job('tiny-qwen3'), topology([(CPU, 1)]), parameters=ScheduleParameters(solver='deap'))\n"
            "except InputError as error:\n    print(error.line)")
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    assert "needs the DEAP library" in done.stdout and "pip install" in done.stdout


def test_deap_leaves_the_callers_random_numbers_alone() -> None:
    random.seed(7)
    expected = random.Random(7).random()
    found_by("deap", big_job("Qwen3-0.6B"), topology([(A100, 2)]), evaluations=100)
    assert random.random() == expected


def test_random_arrangements_are_equally_likely() -> None:
    """GRPO on three devices: every grouping with every ordered choice of devices, counted by hand and by chi-square."""
    problem = build_problem(big_job("Qwen3-0.6B", algorithm="grpo"), topology([(A100, 3)]))
    arrangements = Arrangements(problem, random.Random(1))
    draws = Counter(tuple(zip(*made, strict=True)) for _ in range(60_000) if (made := arrangements.draw()) is not None)
    expected = sum(factorial(3) // factorial(3 - n) * comb(n - 1, len(g) - 1) for g in groupings(problem) for n in range(len(g), 4))
    assert len(draws) == expected
    mean = sum(draws.values()) / expected
    chi2 = sum((n - mean) ** 2 / mean for n in draws.values())
    assert chi2 < expected - 1 + 4 * (2 * (expected - 1)) ** 0.5, f"{chi2:.0f} of {expected - 1} expected"
