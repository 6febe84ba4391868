"""``auto``: coarse plans of different groupings, then compiled local search from the best of them, halving over these starts."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from math import ceil, log2

import numpy as np

from artifacts.search import Arm
from stages.schedule.cost.iteration import make_ready
from stages.schedule.cost.kernel.arrays import Ints, Tables
from stages.schedule.cost.tables import compiled
from stages.schedule.draft import Draft
from stages.schedule.problem import Problem
from stages.schedule.search.auto.arrays import BEST, COUNTS, PRICED, TOUR, Bench, Rules
from stages.schedule.search.auto.coarse import Coarse, blocks_by_kind, blocks_of, most_blocks
from stages.schedule.search.auto.kernel_chain import MOVES, work
from stages.schedule.search.auto.rules import build_bench, build_rules, copied, draft_of, leave_idle, state_of, wide
from stages.schedule.search.construct import best_group, device_orders, seeds
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.evolution import OperatorCount
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.random_search import random_plans
from stages.schedule.search.space import groupings, size_vectors

COARSE_FRACTION = 0.25
"""Share of the budget for finding the starts."""
JUDGED = 2
"""Deals priced as whole plans for each that is searched from: their estimates know nothing of the weight update."""
LEAVES = 6
GROUPINGS = 4
"""Of the starts, how many are of different groupings; the others are the best that are left."""
LEAST_CHAINS = 2
"""Searches side by side to the end; under a budget of seconds, as many as there are cores."""
TOGETHER = 4
"""Coarse groups priced between two looks at the budget."""
MEMORY = 30
"""Evaluations for each plan that late acceptance remembers."""
TOURED = 1000
"""Evaluations of a round below which it is too short to begin with the tour of large moves."""
LEAST_SHARE = 500
"""Evaluations below which a start shows nothing: fewer are tried instead."""
FIRST_PACE = 2e4
"""Evaluations a second on one core and 64 devices, before any were counted."""
SLICE_S = 0.2
"""Seconds between two looks at the clock and at whether to go on."""
FIRST_GROUPINGS = 6
CHAINS = 8
"""Machines from which a nearest-neighbour order starts."""


@dataclass(eq=False)
class Leaf:
    """A start with its search."""

    name: str
    bench: Bench
    rounds: int = 0

    @property
    def cost(self) -> float:
        return float(self.bench.sums[BEST])

    @property
    def spent(self) -> float:
        return float(self.bench.sums[PRICED])


def auto(evaluator: Evaluator, *, seed: int, warm: Sequence[Draft] = ()) -> SearchReport:
    """Search until the budget is spent; the evaluator holds the best plan.

    With a budget of evaluations and a seed the result is the same everywhere, whatever the cores.
    """
    problem = evaluator.problem
    tables, rules = compiled(problem).tables, build_rules(problem, orders_of(problem))
    starts = _lucky(evaluator, seed) if "seeds" in evaluator.without else _starts(evaluator, tables, rules, warm)
    if "local-search" in evaluator.without:
        return SearchReport(arms=[], operators={})
    most = max(1, min(LEAVES, len(starts), int(evaluator.left() / LEAST_SHARE)))
    leaves = [Leaf(_name(d), build_bench(problem, seed=seed * 1009 + i, state=state_of(problem, d))) for i, d in enumerate(starts[:most])]
    if leaves and evaluator.left() > 0:
        _halving(evaluator, tables, rules, leaves, seed)
    arms = [Arm(name=f.name, evaluations=int(f.spent), best_s=f.cost if f.cost < 1e11 else None, rounds=f.rounds) for f in leaves]
    return SearchReport(arms=arms, operators=_operators(leaves))


def _operators(leaves: Sequence[Leaf]) -> dict[str, OperatorCount]:
    sums = np.sum([f.bench.sums[COUNTS:] for f in leaves], axis=0).reshape(2, -1).astype(int).tolist() if leaves else [[], []]
    return {name: OperatorCount(tried, improved) for name, tried, improved in zip(MOVES, *sums, strict=False)}


def ready(problem: Problem) -> None:
    """Compile (or load) the kernel and the search around it."""
    make_ready(problem)
    bench = build_bench(problem, seed=0)
    work(compiled(problem).tables, build_rules(problem, orders_of(problem)), bench, 0, 0)


def orders_of(problem: Problem) -> list[Ints]:
    """Orders to deal devices in: by place, by rates, and machine by machine to the nearest next from a few machines."""
    fleet, found = problem.fleet, [np.array(o, dtype=np.int64) for o in device_orders(problem)]
    while len(found) < 2:
        found.append(found[0])
    distance = fleet.machine_latency_s + 1e8 * fleet.machine_inverse_bandwidth
    count = len(fleet.machines)
    for first in range(0, count, max(1, -(-count // CHAINS))):
        left, chain = np.ones(count, dtype=bool), [first]
        left[first] = False
        while left.any():
            chain.append(int(np.argmin(np.where(left, distance[chain[-1]], np.inf))))
            left[chain[-1]] = False
        rank = np.empty(count)
        rank[chain] = np.arange(count)
        found.append(np.lexsort((np.arange(fleet.size), rank[fleet.machine])))
    return found


def _starts(evaluator: Evaluator, tables: Tables, rules: Rules, warm: Sequence[Draft]) -> list[Draft]:
    """Plans to begin with, best first; all are priced by the evaluator."""
    found: list[tuple[float, int, Draft]] = []

    def judge(drafts: Iterable[Draft]) -> None:
        for draft in drafts:
            price = evaluator.plan(draft)
            if price is not None:
                found.append((price.cost, len(found), draft))

    judge(d for w in warm for d in _renewed(evaluator, w))
    judge(_first(evaluator))
    judge(_coarse(evaluator, tables, rules))
    found.sort(key=lambda f: f[:2])
    return _diverse(found) if wide(evaluator.problem) else [draft for _, _, draft in found]


def _diverse(found: Sequence[tuple[float, int, Draft]]) -> list[Draft]:
    """The best plans of different groupings first, as many as ``GROUPINGS``; then the others. Of plans alike but for their devices one."""
    alike: dict[tuple[str, float], Draft] = {}
    for cost, _, draft in found:
        alike.setdefault((_name(draft), float(f"{cost:.7g}")), draft)
    firsts: dict[frozenset[tuple[str, ...]], Draft] = {}
    for draft in alike.values():
        firsts.setdefault(frozenset(g.tasks for g in draft.groups), draft)
    leading = list(firsts.values())[:GROUPINGS]
    return [*leading, *(d for d in alike.values() if d not in leading)]


def _coarse(evaluator: Evaluator, tables: Tables, rules: Rules) -> list[Draft]:
    """The best deals of whole blocks, found within their share of the budget."""
    cores, budget = len(os.sched_getaffinity(0)), evaluator.budget.seconds
    benches = [build_bench(evaluator.problem, seed=0) for _ in range(max(TOGETHER, cores) if budget is not None else TOGETHER)]
    fraction = 1.0 if "local-search" in evaluator.without else COARSE_FRACTION
    blockings = blockings_of(evaluator.problem, most_blocks(rules))
    began, left = evaluator.seconds, evaluator.left()
    until, least, counted = None, 0.0, 0

    def going() -> bool:
        nonlocal counted
        evaluator.evaluations += int(sum(b.sums[PRICED] for b in benches)) - counted
        counted = int(sum(b.sums[PRICED] for b in benches))
        evaluator.report()
        return evaluator.left() > least if until is None else evaluator.seconds < until

    drafts: list[Draft] = []
    for number, blocks in enumerate(blockings, 1):
        part = fraction * number / len(blockings)
        until, least = None if budget is None else began + part * (budget - began), left * (1 - part)
        coarse = Coarse(evaluator.problem, tables, rules, benches, blocks)
        with ThreadPoolExecutor(cores) as pool:
            coarse.refine(pool, going)
        drafts += coarse.starts((JUDGED if wide(evaluator.problem) else 1) * max(1, min(LEAVES, int(evaluator.left() / LEAST_SHARE))))
        going()
    return drafts


def blockings_of(problem: Problem, most: int) -> list[list[list[int]]]:
    """The blocks that are dealt: by place, and where the fleet is large by kind too, if that is something else."""
    found = [blocks_of(problem, most)]
    if wide(problem) and sorted(by_kind := blocks_by_kind(problem, most)) != sorted(map(sorted, found[0])):
        found.append(by_kind)
    return found


def _lucky(evaluator: Evaluator, seed: int) -> list[Draft]:
    """Plans drawn at random to begin with, fitting or not, best first."""
    found: list[tuple[float, int, Draft]] = []
    for number, draft in enumerate(random_plans(evaluator.problem, random.Random(seed))):
        price = evaluator.plan(draft) if draft is not None else None
        if draft is not None and price is not None:
            found.append((price.cost, number, draft))
        if len(found) == LEAVES or evaluator.left() <= 0:
            break
    return [draft for _, _, draft in sorted(found, key=lambda f: f[:2])]


def _until(evaluator: Evaluator, fraction: float) -> float | None:
    """When a fraction of the seconds left is over; None under a budget of evaluations."""
    seconds = evaluator.budget.seconds
    return None if seconds is None else evaluator.seconds + fraction * (seconds - evaluator.seconds)


def _renewed(evaluator: Evaluator, draft: Draft) -> Iterator[Draft]:
    """An earlier plan as it is, and its groups cut anew."""
    yield draft
    made = [g for old in draft.groups if (g := best_group(evaluator, old.tasks, old.devices)) is not None]
    if len(made) == len(draft.groups):
        yield Draft(groups=tuple(made))


def _first(evaluator: Evaluator) -> Iterator[Draft]:
    """Constructive plans of the coarsest groupings, until one fits."""
    for grouping in sorted(groupings(evaluator.problem), key=len)[:FIRST_GROUPINGS]:
        for sizes in size_vectors(evaluator.problem, grouping, most=1):
            yield from islice(seeds(evaluator, grouping, sizes), 1)
        if evaluator.best is not None or evaluator.left() <= 0:
            return


def _name(draft: Draft) -> str:
    return " | ".join(f"{'+'.join(g.tasks)}:{len(g.devices)}" for g in draft.groups)


def _halving(evaluator: Evaluator, tables: Tables, rules: Rules, leaves: list[Leaf], seed: int) -> None:
    """Rounds of local search; after each the better half goes on from its best plans, twice as long.

    Where that is fewer than run side by side, the same plans are also searched from with other luck; these searches join ``leaves``.
    """
    problem, cores, alive = evaluator.problem, len(os.sched_getaffinity(0)), list(leaves)
    rounds = 1 if "halving" in evaluator.without else max(1, ceil(log2(len(leaves))))
    least = LEAST_CHAINS if evaluator.budget.seconds is None else max(LEAST_CHAINS, cores)
    pace = FIRST_PACE * 64 / max(64, problem.fleet.size)
    with ThreadPoolExecutor(cores) as pool:
        for turn in range(rounds):
            twins = [_twin(problem, alive[i % len(alive)], seed * 1009 + len(leaves) + i) for i in range(least - len(alive))]
            leaves += twins
            alive += twins
            until = _until(evaluator, 1 / (rounds - turn))
            share = evaluator.left() / (rounds - turn) / len(alive)
            if until is not None:
                share = (until - evaluator.seconds) * pace * min(1.0, cores / len(alive))
            for leaf in alive:
                _begin(problem, leaf, share, again=leaf.rounds > 0)
            goals, most = [leaf.spent + share for leaf in alive], max(100, int(SLICE_S * pace))
            while True:
                began, before = evaluator.seconds, sum(leaf.spent for leaf in alive)
                if until is not None:
                    most = max(20, int(min(SLICE_S, max(0.0, until - began)) * pace * min(1.0, cores / len(alive))))
                    goals = [leaf.spent + most for leaf in alive]
                steps = [min(most, ceil(goal - leaf.spent)) for goal, leaf in zip(goals, alive, strict=True)]
                jobs = [pool.submit(work, tables, rules, f.bench, 0, n) for f, n in zip(alive, steps, strict=True) if n > 0]
                for job in jobs:
                    job.result()
                done = sum(leaf.spent for leaf in alive) - before
                evaluator.evaluations += int(done)
                _adopt(evaluator, min(alive, key=lambda leaf: leaf.cost))
                evaluator.report()
                if until is not None:
                    pace = (pace + done / max(1e-3, evaluator.seconds - began) / min(cores, len(alive))) / 2
                    over = evaluator.seconds >= until
                else:
                    over = all(leaf.spent >= goal for leaf, goal in zip(alive, goals, strict=True))
                if over:
                    break
            alive = sorted(alive, key=lambda leaf: leaf.cost)[: ceil(len(alive) / 2)]


def _twin(problem: Problem, leaf: Leaf, seed: int) -> Leaf:
    """A search from the same plan with other luck."""
    state = copied(leaf.bench.best)
    leave_idle(problem, state)
    return Leaf(leaf.name, build_bench(problem, seed=seed, state=state))


def _begin(problem: Problem, leaf: Leaf, share: float, *, again: bool) -> None:
    """Make a leaf ready for a round of ``share`` evaluations; ``again``: from its best plan."""
    leaf.bench = leaf.bench._replace(history=np.full(max(1, int(share / MEMORY)), np.inf))
    if again:
        leave_idle(problem, leaf.bench.best)
        leaf.bench = leaf.bench._replace(state=copied(leaf.bench.best))
    leaf.bench.sums[TOUR] = 0.0 if wide(problem) and share >= TOURED else np.inf
    leaf.rounds += 1


def _adopt(evaluator: Evaluator, leaf: Leaf) -> None:
    """Let the evaluator price a leaf's best plan, if it is the best there is."""
    known = evaluator.best or evaluator.nearest
    if known is None or leaf.cost < known.cost * (1 - 1e-9):
        evaluator.plan(draft_of(evaluator.problem, leaf.bench.best))
