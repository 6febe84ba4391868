"""SHA-EA: successive halving over groupings, inside it over group sizes, inside it evolution; then a polish of the best leaves.

With a budget of evaluations and a seed the result is the same everywhere. ``published``: without the polish, and what is scored of an
offspring is what a locality search makes of it, while the population keeps the offspring as it was (Baldwinian).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from typing import TypeVar

from artifacts.search import Arm
from stages.schedule.draft import Draft
from stages.schedule.search.construct import best_group, random_seeds, seeds
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.evolution import OperatorCount, Population, Score, as_it_is, evolve
from stages.schedule.search.locality import near_first
from stages.schedule.search.proof import Proof
from stages.schedule.search.space import Grouping, Sizes, device_seconds, estimate, groupings, size_vectors

LEAST_SHARE = 80
"""Evaluations below which an arm cannot show anything: fewer arms are started instead."""
POLISH_FRACTION = 0.4
POLISHED_LEAVES = 4
MOST_SIZES = 24

A = TypeVar("A")


@dataclass(eq=False)
class SizeArm:
    """Level 2: one size vector of one grouping, with its living population."""

    grouping: Grouping
    sizes: Sizes
    population: Population = field(default_factory=Population)
    evaluations: int = 0
    rounds: int = 0
    started: bool = False


@dataclass(eq=False)
class GroupingArm:
    """Level 1: one grouping, with its size vectors still alive."""

    grouping: Grouping
    alive: list[SizeArm]
    all: list[SizeArm]

    @property
    def best(self) -> float:
        return min((a.population.best for a in self.all), default=float("inf"))


@dataclass(frozen=True, eq=False)
class SearchReport:
    """What was spent where."""

    arms: list[Arm]
    operators: dict[str, OperatorCount]
    proof: Proof | None = None
    cpu_seconds: float = 0.0
    """Of other processes that searched."""


def sha_ea(evaluator: Evaluator, *, seed: int, warm: Sequence[Draft] = (), published: bool = False) -> SearchReport:
    """Search until the budget is spent; the evaluator holds the best plan."""
    without = evaluator.without
    score = near_first if published and "local-search" not in without else as_it_is
    polish = 0.0 if published or "local-search" in without else POLISH_FRACTION
    rng = random.Random(seed)
    counts: dict[str, OperatorCount] = {}
    population = Population()
    for draft in warm:
        made = [best_group(evaluator, g.tasks, g.devices) for g in draft.groups]
        recut = Draft(groups=tuple(g for g in made if g is not None))
        for start in (draft, recut) if len(recut.groups) == len(draft.groups) else (draft,):
            price = evaluator.plan(start)
            if price is not None:
                population.add(price.cost, start)
    arms = _grouping_arms(evaluator, polish)

    def run_sizes(arm: SizeArm, share: float) -> None:
        _run_arm(evaluator, arm, share, rng, counts, score)

    def run_grouping(arm: GroupingArm, share: float) -> None:
        starters = max(1, int(share / LEAST_SHARE))
        arm.alive = arm.alive[:starters]
        arm.alive = halving(arm.alive, share, run=run_sizes, cost=lambda a: a.population.best, left=evaluator.left, alike=alike)

    alike = "halving" in without
    alive, before = arms, -1
    while alive and evaluator.left() > 0 and before < evaluator.evaluations:
        before = evaluator.evaluations
        alive = halving(alive, evaluator.left() * (1 - polish), run=run_grouping, cost=lambda a: a.best, left=evaluator.left, alike=alike)
        if polish:
            break  # what is left is the polish's; else the arms that are left have what a budget of seconds still holds
    records = [_record(a) for g in arms for a in g.all if a.evaluations]
    if polish or warm:
        records.append(_polish(evaluator, [a for g in arms for a in g.all if a.population.members], population, rng, counts))
    return SearchReport(arms=records, operators=counts)


def halving(
    arms: list[A],
    budget: float,
    *,
    run: Callable[[A, float], None],
    cost: Callable[[A], float],
    left: Callable[[], float],
    alike: bool = False,
) -> list[A]:
    """Spend ``budget`` in rounds, the living arms sharing each alike and the better half going on; returns the arms of the last round.

    One arm alone gets everything in one round (the logarithm would be 0). ``alike``: all arms get the same, and none is given up.
    """
    alive = list(arms)
    rounds = (1 if alike else max(1, ceil(log2(len(alive))))) if alive else 0
    for turn in range(rounds):
        share = budget / rounds / len(alive)
        for arm in alive:
            if left() <= 0:
                return alive
            run(arm, share)
        if turn < rounds - 1:
            alive = sorted(alive, key=cost)[: ceil(len(alive) / 2)]
    return alive


def _grouping_arms(evaluator: Evaluator, polish: float) -> list[GroupingArm]:
    """Groupings by the estimate of their best size vector, only as many as the budget can start."""
    problem = evaluator.problem
    work = device_seconds(problem)
    made = []
    for grouping in groupings(problem):
        vectors = size_vectors(problem, grouping, most=MOST_SIZES)
        if vectors:
            arms = [SizeArm(grouping=grouping, sizes=s) for s in vectors]
            made.append(
                (estimate(problem, grouping, vectors[0], work), grouping, GroupingArm(grouping=grouping, alive=list(arms), all=arms))
            )
    made.sort(key=lambda m: (m[0], m[1]))
    budget = evaluator.left() * (1 - polish)
    most = max(1, int(budget / max(1.0, log2(max(2, len(made)))) / LEAST_SHARE))
    return [arm for _, _, arm in made[:most]]


def _run_arm(
    evaluator: Evaluator, arm: SizeArm, share: float, rng: random.Random, counts: dict[str, OperatorCount], score: Score
) -> None:
    before = evaluator.evaluations
    if not arm.started:
        arm.started = True
        lucky = "seeds" in evaluator.without
        for draft in (random_seeds(evaluator, arm.grouping, arm.sizes, rng) if lucky else seeds(evaluator, arm.grouping, arm.sizes)):
            price = evaluator.plan(draft)
            if price is not None:
                arm.population.add(price.cost, draft)
            if evaluator.evaluations - before >= share or evaluator.left() <= 0:
                break
    evolve(evaluator, arm.population, share=share - (evaluator.evaluations - before), rng=rng, free=False, counts=counts, score=score)
    arm.evaluations += evaluator.evaluations - before
    arm.rounds += 1


def _polish(evaluator: Evaluator, arms: list[SizeArm], warm: Population, rng: random.Random, counts: dict[str, OperatorCount]) -> Arm:
    """Evolve the best few different leaves with free sizes, halving over the leaves: the incumbent is not always the best start."""
    leaves = [a.population for a in sorted(arms, key=lambda a: a.population.best)[:POLISHED_LEAVES]]
    if warm.members:
        leaves.append(warm)

    def run(population: Population, share: float) -> None:
        evolve(evaluator, population, share=share, rng=rng, free=True, counts=counts)

    before = evaluator.evaluations
    halving(leaves, evaluator.left(), run=run, cost=lambda p: p.best, left=evaluator.left)
    return Arm(
        name=f"polish of the best {len(leaves)}",
        evaluations=evaluator.evaluations - before,
        rounds=1,
        best_s=evaluator.best.cost if evaluator.best else None,
    )


def _record(arm: SizeArm) -> Arm:
    name = " | ".join(f"{'+'.join(group)}:{size}" for group, size in zip(arm.grouping, arm.sizes, strict=True))
    best = arm.population.best
    return Arm(name=name, evaluations=arm.evaluations, best_s=best if best < 1e11 else None, rounds=arm.rounds)
