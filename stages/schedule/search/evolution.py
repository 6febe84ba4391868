"""The evolutionary step inside an arm: a steady-state population of drafts, mutated by swaps, moves and new cuts.

An offspring replaces the worst member when it is better, and is kept as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.draft import Draft, GroupDraft
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.space import cuts, mask_of, rollout_tps

POPULATION = 24
FRUITLESS = 300
"""Mutations in a row that led nowhere new: the neighbourhood is exhausted."""
Mutation = Callable[[Problem, Draft, random.Random], Draft | None]
Score = Callable[[Evaluator, Draft], PlanPrice | None]
"""What an offspring is worth: its price, or that of what a local search makes of it."""


@dataclass(eq=False)
class Population:
    """Members with their costs, best first; no draft twice."""

    members: list[tuple[float, Draft]] = field(default_factory=list)
    limit: int = POPULATION

    @property
    def best(self) -> float:
        return self.members[0][0] if self.members else float("inf")

    def add(self, cost: float, draft: Draft) -> bool:
        """Take a draft in if there is room or it beats the worst; tells whether it did."""
        if any(draft == d for _, d in self.members):
            return False
        if len(self.members) >= self.limit:
            if cost >= self.members[-1][0]:
                return False
            self.members.pop()
        at = next((i for i, (c, _) in enumerate(self.members) if cost < c), len(self.members))
        self.members.insert(at, (cost, draft))
        return True


@dataclass(eq=False)
class OperatorCount:
    tried: int = 0
    improved: int = 0


def as_it_is(evaluator: Evaluator, draft: Draft) -> PlanPrice | None:
    return evaluator.plan(draft)


def evolve(
    evaluator: Evaluator,
    population: Population,
    *,
    share: float,
    rng: random.Random,
    free: bool,
    counts: dict[str, OperatorCount],
    score: Score = as_it_is,
) -> None:
    """Spend ``share`` evaluations on a population. ``free``: group sizes may change, devices may go idle or come back."""
    problem, known = evaluator.problem, evaluator.known
    names = [n for n in MUTATIONS if free or n not in FREE_ONLY]
    end = evaluator.evaluations + share
    fruitless = 0
    while population.members and evaluator.evaluations < end and evaluator.left() > 0 and fruitless < FRUITLESS:
        parent_cost, parent = min((rng.choice(population.members) for _ in range(2)), key=lambda member: member[0])
        name = rng.choice(names)
        child = MUTATIONS[name](problem, parent, rng)
        if child is None or child in known:
            fruitless += 1
            continue
        fruitless = 0
        count = counts.setdefault(name, OperatorCount())
        count.tried += 1
        price = score(evaluator, child)
        if price is None:
            continue
        if price.cost < parent_cost:
            count.improved += 1
        population.add(price.cost, child)


def _with(draft: Draft, changes: dict[int, GroupDraft]) -> Draft:
    return Draft(groups=tuple(changes.get(i, g) for i, g in enumerate(draft.groups)))


def reorder(problem: Problem, draft: Draft, rng: random.Random) -> Draft | None:
    """Level 5: exchange two devices of one group in the order ranks are dealt in, or turn a run of them round."""
    g = rng.randrange(len(draft.groups))
    devices = list(draft.groups[g].devices)
    if len(devices) < 2:
        return None
    i, j = sorted(rng.sample(range(len(devices)), 2))
    if rng.random() < 0.5:
        devices[i], devices[j] = devices[j], devices[i]
    else:
        devices[i : j + 1] = reversed(devices[i : j + 1])
    return _with(draft, {g: replace(draft.groups[g], devices=tuple(devices))})


def reorder_machines(problem: Problem, draft: Draft, rng: random.Random) -> Draft | None:
    """Level 5 for whole machines: gather a group's devices by machine and move one machine to another place in the order."""
    g = rng.randrange(len(draft.groups))
    blocks: dict[int, list[int]] = {}
    for d in draft.groups[g].devices:
        blocks.setdefault(int(problem.fleet.machine[d]), []).append(d)
    order = list(blocks)
    if len(order) < 2:
        return None
    moved = order.pop(rng.randrange(len(order)))
    order.insert(rng.randrange(len(order) + 1), moved)
    return _with(draft, {g: replace(draft.groups[g], devices=tuple(d for m in order for d in blocks[m]))})


def exchange(problem: Problem, draft: Draft, rng: random.Random) -> Draft | None:
    """Level 3: a device of one group against one of another group, or an idle one; several of one machine at once, where both have them."""
    g = rng.randrange(len(draft.groups))
    mine = draft.groups[g]
    idle = [d for d in range(problem.fleet.size) if d not in draft.used and mask_of(problem, mine.tasks)[d]]
    others = [h for h in range(len(draft.groups)) if h != g] + ([-1] if idle else [])
    if not others:
        return None
    h = rng.choice(others)
    theirs = list(idle) if h < 0 else list(draft.groups[h].devices)
    out, back = rng.choice(mine.devices), rng.choice(theirs)
    count = rng.choice((1, 1, 2, 4, 8))
    outs = [d for d in mine.devices if problem.fleet.machine[d] == problem.fleet.machine[out]][:count] if count > 1 else [out]
    backs = [d for d in theirs if problem.fleet.machine[d] == problem.fleet.machine[back]][: len(outs)] if count > 1 else [back]
    pairs = list(zip(outs, backs, strict=False))
    there, here = dict(pairs), {b: o for o, b in pairs}
    changes = {g: replace(mine, devices=tuple(there.get(d, d) for d in mine.devices))}
    if h >= 0:
        changes[h] = replace(draft.groups[h], devices=tuple(here.get(d, d) for d in draft.groups[h].devices))
    child = _with(draft, changes)
    return child if _admissible(problem, child) else None


def recut(problem: Problem, draft: Draft, rng: random.Random) -> Draft | None:
    """Level 4: another cut of a group's devices."""
    g = rng.randrange(len(draft.groups))
    group = draft.groups[g]
    if group.cut is None:
        return retune_rollout(problem, draft, rng)
    choices = cuts(problem, group.tasks, group.devices, thorough=True)
    return _with(draft, {g: replace(group, cut=rng.choice(choices))}) if choices else None


def nudge_cut(problem: Problem, draft: Draft, rng: random.Random) -> Draft | None:
    """Level 4, a small step: the micro-batch halved or doubled, the arrangement turned, or depth against replicas."""
    g = rng.randrange(len(draft.groups))
    group = draft.groups[g]
    if group.cut is None:
        return None
    cut, way = group.cut, rng.randrange(3)
    most = problem.work.micro_batch_sequences
    if way == 0:
        other = replace(cut, micro=max(1, min(most, cut.micro * 2 if rng.random() < 0.5 else cut.micro // 2)))
    elif way == 1:
        other = replace(cut, column=not cut.column)
    else:
        options = [c for c in cuts(problem, group.tasks, group.devices, thorough=True) if c.tp == cut.tp and abs(c.pp - cut.pp) <= 2]
        if not options:
            return None
        other = replace(rng.choice(options), micro=cut.micro)
    return _with(draft, {g: replace(group, cut=other)})


def retune_rollout(problem: Problem, draft: Draft, rng: random.Random) -> Draft | None:
    """Level 4 for rollout: another tensor-parallel degree."""
    if problem.engine.rollout.follows_actor:
        return None
    g = next(i for i, group in enumerate(draft.groups) if group.rollout_tp)
    choices = rollout_tps(problem, len(draft.groups[g].devices))
    return _with(draft, {g: replace(draft.groups[g], rollout_tp=rng.choice(choices))}) if choices else None


def move(problem: Problem, draft: Draft, rng: random.Random) -> Draft | None:
    """Levels 2 and 3: devices of one machine move from a group (or from idling) to another (or to idling)."""
    places = [*range(len(draft.groups)), -1]
    source, target = rng.sample(places, 2)
    idle = [d for d in range(problem.fleet.size) if d not in draft.used]
    here = list(draft.groups[source].devices) if source >= 0 else idle
    if not here:
        return None
    chosen = problem.fleet.machine[rng.choice(here)]
    mates = [d for d in here if problem.fleet.machine[d] == chosen]
    taken = set(mates[: min(rng.choice((1, 1, 2, 4, 8)), len(mates))])
    changes: dict[int, GroupDraft] = {}
    if source >= 0:
        changes[source] = _resized(problem, draft.groups[source], tuple(d for d in here if d not in taken))
    if target >= 0:
        group = draft.groups[target]
        changes[target] = _resized(problem, group, _beside(problem, group.devices, sorted(taken)))
    child = _with(draft, changes)
    return child if all(g.devices for g in child.groups) and _admissible(problem, child) else None


def _beside(problem: Problem, devices: tuple[int, ...], new: list[int]) -> tuple[int, ...]:
    """New devices go behind the last of their machine, so that machines stay together."""
    at = max((i + 1 for i, d in enumerate(devices) if problem.fleet.machine[d] == problem.fleet.machine[new[0]]), default=len(devices))
    return (*devices[:at], *new, *devices[at:])


def _resized(problem: Problem, group: GroupDraft, devices: tuple[int, ...]) -> GroupDraft:
    """The same group on other devices, with as many replicas of the same shape as they allow (the user's fixed number stays)."""
    if group.cut is None or not devices:
        return replace(group, devices=devices)
    cut = group.cut
    if not any("dp" in problem.job.constraints.fix.get(t, {}) for t in group.tasks):  # type: ignore[call-overload]
        cut = replace(cut, dp=problem.largest_dp(len(devices) // (cut.pp * cut.tp)))
    return replace(group, devices=devices, cut=cut)


def _admissible(problem: Problem, draft: Draft) -> bool:
    return all(mask_of(problem, g.tasks)[list(g.devices)].all() for g in draft.groups)


MUTATIONS: dict[str, Mutation] = {
    "reorder": reorder,
    "reorder_machines": reorder_machines,
    "exchange": exchange,
    "recut": recut,
    "nudge_cut": nudge_cut,
    "retune_rollout": retune_rollout,
    "move": move,
}
FREE_ONLY = frozenset({"move"})
