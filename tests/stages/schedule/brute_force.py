"""Every plan there is, one after the other: what the exact solver must agree with. For fleets of at most five devices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

from stages.schedule.draft import Cut, Draft, GroupDraft
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.space import groupings


def best_of_everything(problem: Problem) -> float | None:
    """Iteration seconds of the best plan; None where none fits."""
    evaluator = Evaluator(problem, Budget(10**12))
    for draft in everything(problem):
        evaluator.plan(draft)
    return evaluator.best.iteration_s if evaluator.best else None


def everything(problem: Problem) -> Iterator[Draft]:
    """Every grouping, every ordered choice of devices, every way to cut them; devices without a rank are in no group."""
    devices = range(problem.fleet.size)
    options: dict[tuple[tuple[str, ...], int], list[tuple[Cut | None, int]]] = {}
    for grouping in groupings(problem):
        for count in range(len(grouping), problem.most_devices + 1):
            for order in permutations(devices, count):
                for parts in _parts(order, len(grouping)):
                    for tasks, part in zip(grouping, parts, strict=True):
                        if (tasks, len(part)) not in options:
                            options[tasks, len(part)] = list(_ways(problem, tasks, len(part)))
                    for ways in product(*(options[t, len(p)] for t, p in zip(grouping, parts, strict=True))):
                        groups = [GroupDraft(tasks=t, devices=p, cut=c, rollout_tp=r) for t, p, (c, r) in zip(grouping, parts, ways, strict=True)]
                        if all(problem.allowed[t][d] for g in groups for t in g.tasks for d in g.devices):
                            yield Draft(groups=tuple(groups))


def _parts(order: tuple[int, ...], parts: int) -> Iterator[list[tuple[int, ...]]]:
    if parts == 1:
        yield [order]
        return
    for first in range(1, len(order) - parts + 2):
        for rest in _parts(order[first:], parts - 1):
            yield [order[:first], *rest]


def _ways(problem: Problem, tasks: tuple[str, ...], devices: int) -> Iterator[tuple[Cut | None, int]]:
    engine, models = problem.engine, [problem.task(t).model for t in tasks if t != "rollout"]
    rollout = problem.task("rollout").model
    shards = [0]
    if "rollout" in tasks:
        shards = [r for r in range(1, devices + 1) if devices % r == 0 and r <= engine.rollout.max_tp and all(getattr(rollout, w) % r == 0 for w in engine.rollout.tp_divides)]
        shards = [1] if engine.rollout.follows_actor else shards
    if not models:
        yield from ((None, r) for r in shards)
        return
    micro = problem.work.micro_batch_sequences
    for dp, pp, tp in product(range(1, devices + 1), repeat=3):
        legal = dp * pp * tp == devices and problem.legal_dp(dp) and all(getattr(m, w) % tp == 0 for m in models for w in engine.tp_divides)
        if legal and all(pp <= m.layers for m in models):
            while micro >= 1:
                yield from ((Cut(dp, pp, tp, micro, column), r) for column in (False, True) for r in shards)
                micro //= 2
            micro = problem.work.micro_batch_sequences
