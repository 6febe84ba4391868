"""Good starting plans without luck: devices ordered by speed, memory rate or place, dealt to groups, each group cut its best way."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from stages.schedule.cost.iteration import GroupPrice
from stages.schedule.draft import Cut, Draft, GroupDraft
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.space import Grouping, Sizes, cuts, draft_group, mask_of, rollout_tps, smaller_micros

MOST_CUTS = 20
RANDOM_SEEDS = 8


def device_orders(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Level 3: orders to deal devices in: by place, by compute rate, by memory rate, by memory; each keeps machines together."""
    fleet = problem.fleet
    flops = np.array([c.best for c in fleet.curves])[fleet.device_class]
    keys = [
        (fleet.region, fleet.machine),
        (-flops, fleet.machine),
        (-fleet.hbm_bytes_per_s, fleet.machine),
        (-fleet.memory_bytes, fleet.machine),
    ]
    seen = set()
    for key in keys:
        order = tuple(int(i) for i in np.lexsort((np.arange(fleet.size), key[1], key[0])))
        if order not in seen:
            seen.add(order)
            yield order


def deal(problem: Problem, grouping: Grouping, sizes: Sizes, order: tuple[int, ...], *, first: int = 0) -> list[tuple[int, ...]] | None:
    """Devices of each group: the most restricted group first, then from group ``first`` on; None where a group cannot be filled."""
    masks = [mask_of(problem, g) for g in grouping]
    turn = sorted(range(len(grouping)), key=lambda g: (int(masks[g].sum()), (g - first) % len(grouping)))
    free, dealt = list(order), [()] * len(grouping)  # type: list[int], list[tuple[int, ...]]
    for g in turn:
        mine = [d for d in free if masks[g][d]][: sizes[g]]
        if len(mine) < sizes[g]:
            return None
        taken = set(mine)
        free = [d for d in free if d not in taken]
        dealt[g] = tuple(mine)
    return dealt


def best_group(evaluator: Evaluator, tasks: tuple[str, ...], devices: tuple[int, ...], *, most: int = MOST_CUTS) -> GroupDraft | None:
    """The cut of these devices that makes the group's own tasks fastest; the nearest to fitting where none fits."""
    problem = evaluator.problem
    tps = _rollout_choices(problem, tasks, len(devices))
    if all(t == "rollout" for t in tasks):
        return _best(evaluator, [draft_group(problem, tasks, devices, None, tp) for tp in tps])
    choices = cuts(problem, tasks, devices, thorough=False)
    drafts = [draft_group(problem, tasks, devices, cut, tps[0]) for cut in _spread(choices, most)]
    best = _best(evaluator, drafts)
    if best is None:
        return None
    if len(tps) > 1:
        best = _best(evaluator, [best, *(replace(best, rollout_tp=tp) for tp in tps[1:])])
    return _with_smaller_micro(evaluator, best)


def _rollout_choices(problem: Problem, tasks: tuple[str, ...], devices: int) -> list[int]:
    if "rollout" not in tasks:
        return [0]
    if problem.engine.rollout.follows_actor:
        return [1]
    return [tp for tp in rollout_tps(problem, devices) if tp & (tp - 1) == 0] or rollout_tps(problem, devices) or [1]


def _spread(choices: Sequence[Cut], most: int) -> Sequence[Cut]:
    """The first half, and the rest evenly: promising cuts come first, but a deep pipeline may be what fits."""
    if len(choices) <= most:
        return choices
    head = choices[: most // 2]
    tail = choices[most // 2 :]
    step = len(tail) / (most - len(head))
    return [*head, *(tail[int(i * step)] for i in range(most - len(head)))]


def _with_smaller_micro(evaluator: Evaluator, best: GroupDraft | None) -> GroupDraft | None:
    """Smaller micro-batches where the group does not fit with the job's."""
    if best is None or best.cut is None:
        return best
    price = evaluator.group(best)
    for micro in smaller_micros(evaluator.problem):
        if price is None or price.overflow <= 0:
            break
        other = replace(best, cut=replace(best.cut, micro=micro))
        changed = evaluator.group(other)
        if changed is not None and changed.overflow < price.overflow:
            best, price = other, changed
    return best


def _best(evaluator: Evaluator, drafts: Sequence[GroupDraft | None]) -> GroupDraft | None:
    priced = [(score(p), i) for i, d in enumerate(drafts) if d is not None and (p := evaluator.group(d)) is not None]
    return drafts[min(priced)[1]] if priced else None


def score(price: GroupPrice) -> float:
    """A group judged by itself: its own seconds, and far behind everything that fits when it does not."""
    return price.rollout_s + price.inference_s + price.training_s + (1e13 * (1 + price.overflow) if price.overflow > 0 else 0.0)


def seeds(evaluator: Evaluator, grouping: Grouping, sizes: Sizes) -> Iterator[Draft]:
    """Constructive plans of one grouping and size vector, one for each way to deal the devices."""
    seen = set()
    for order in device_orders(evaluator.problem):
        for first in range(len(grouping)):
            dealt = deal(evaluator.problem, grouping, sizes, order, first=first)
            key = None if dealt is None else tuple(tuple(sorted(d)) for d in dealt)
            if dealt is None or key in seen:
                continue
            seen.add(key)
            made = [best_group(evaluator, tasks, devices) for tasks, devices in zip(grouping, dealt, strict=True)]
            drafts = [g for g in made if g is not None]
            if len(drafts) == len(made):
                yield Draft(groups=tuple(drafts))


def random_seeds(evaluator: Evaluator, grouping: Grouping, sizes: Sizes, rng: random.Random) -> Iterator[Draft]:
    """Plans of one grouping and size vector by luck: devices in a random order, dealt to groups that are cut at random."""
    problem = evaluator.problem
    for _ in range(RANDOM_SEEDS):
        order = tuple(rng.sample(range(problem.fleet.size), problem.fleet.size))
        dealt = deal(problem, grouping, sizes, order)
        if dealt is None:
            return
        groups = []
        for tasks, devices in zip(grouping, dealt, strict=True):
            choices: Sequence[Cut | None] = [None] if tasks == ("rollout",) else cuts(problem, tasks, devices, thorough=True)
            tps = _rollout_choices(problem, tasks, len(devices))
            if choices and tps:
                groups.append(draft_group(problem, tasks, devices, rng.choice(choices), rng.choice(tps)))
        if len(groups) == len(grouping):
            yield Draft(groups=tuple(groups))
