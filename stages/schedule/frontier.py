"""Cost per sample: the fastest plan on each of several parts of the fleet, and which of these plans cost least for their throughput.

A plan pays for the devices it uses, as long as it uses them. For a given set of devices the fastest plan is the cheapest, so the search for
the cheapest plan is a search over sets of devices around the search for the fastest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.search import FrontPoint
from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.preconditions import preconditions
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.variant import without

MOST_KINDS = 4
"""Kinds of machines of which every combination is tried; beyond that only the fleet without each, and each alone."""
TRIMS = 6
"""Parts tried around the cheapest combination: with fewer machines or devices of one kind."""
LEFT_OUT = "left out: with it a sample would cost more"

Mask = NDArray[np.bool_]


class Searched(Protocol):
    @property
    def evaluator(self) -> Evaluator: ...

    @property
    def interrupted(self) -> bool: ...


R = TypeVar("R", bound=Searched)


def cost_per_sample(problem: Problem, price: PlanPrice) -> float:
    """Price of one sample, in the inventory's currency: used devices × seconds of an iteration over its samples."""
    hourly = sum(problem.fleet.devices[int(d)].price_per_hour or 0.0 for g in price.groups for d in g.memory.devices)
    return hourly / 3600.0 * price.iteration_s / problem.work.sequences


def cheapest_fleets(problem: Problem, search: Callable[[Problem, float], R]) -> list[R]:
    """Searches of the whole fleet and of parts of it. ``search`` is given the problem of a part and its share of the budget.

    Raises:
        InputError: a usable device has no price.
    """
    unpriced = sorted({d.name for d in problem.fleet.devices if d.price_per_hour is None and d.id not in problem.excluded})
    if unpriced:
        raise InputError(
            f"objective 'cost' needs a price of every device; without price_per_hour: {', '.join(unpriced[:4])}",
            fix="give prices in the cluster's inventory, or set objective to 'throughput'",
        )
    kinds = _kinds(problem)
    parts = list(_combinations(kinds, problem.fleet.size))
    share = 1.0 / (len(parts) + TRIMS)
    done: list[tuple[float, Mask, R]] = []

    def attempt(left_out: Mask) -> bool:
        """Search a part; False where the search was told to stop."""
        part = without(problem, left_out, LEFT_OUT) if left_out.any() else problem
        if left_out.any() and preconditions(part):
            return True
        run = search(part, share)
        best = run.evaluator.best
        done.append((cost_per_sample(problem, best) if best else float("inf"), left_out, run))
        return not run.interrupted

    going = all(attempt(part) for part in parts)
    for _ in range(TRIMS if going else 0):
        _, left_out, _ = min(done, key=lambda entry: entry[0])
        tried = {entry[1].tobytes() for entry in done}
        trim = next((t for t in _trims(kinds, left_out) if t.tobytes() not in tried), None)
        if trim is None or not attempt(trim):
            break
    return [run for _, _, run in done]


def _kinds(problem: Problem) -> list[list[list[int]]]:
    """Usable devices by kind of machine (classes and region), then by machine."""
    fleet = problem.fleet
    machines: dict[int, list[int]] = {}
    for d in range(fleet.size):
        if fleet.devices[d].id not in problem.excluded:
            machines.setdefault(int(fleet.machine[d]), []).append(d)
    kinds: dict[tuple[object, ...], list[list[int]]] = {}
    for members in machines.values():
        kinds.setdefault((int(fleet.region[members[0]]), tuple(sorted(set(fleet.device_class[members].tolist())))), []).append(members)
    return list(kinds.values())


def _combinations(kinds: list[list[list[int]]], size: int) -> Iterator[Mask]:
    """Devices left out: none first, then kinds of machines in every combination (few kinds), or one kind, or all but one."""
    count = len(kinds)
    numbers = range(count) if count <= MOST_KINDS else sorted({0, 1, count - 1})
    for number in numbers:
        for gone in combinations(range(count), number):
            left_out = np.zeros(size, dtype=bool)
            left_out[[d for k in gone for machine in kinds[k] for d in machine]] = True
            yield left_out


def _trims(kinds: list[list[list[int]]], left_out: Mask) -> Iterator[Mask]:
    """The same part with half the machines of one kind, or with half the devices of its only machine."""
    for machines in kinds:
        here = [[d for d in m if not left_out[d]] for m in machines]
        here = [m for m in here if m]
        gone = [d for m in here[(len(here) + 1) // 2 :] for d in m] if len(here) > 1 else [d for m in here for d in m[(len(m) + 1) // 2 :]]
        trimmed = left_out.copy()
        trimmed[gone] = True
        if gone and not trimmed.all():
            yield trimmed


def frontier(problem: Problem, runs: list[R]) -> tuple[R, list[FrontPoint]]:
    """The run whose best plan has the cheapest samples (the fastest of equals), and the front of all of them, fastest first."""
    found = [(cost_per_sample(problem, best), best.iteration_s, number) for number, run in enumerate(runs) if (best := run.evaluator.best)]
    if not found:
        return runs[0], []
    chosen = min(found)
    front = []
    cheapest = float("inf")
    for cost, seconds, number in sorted(found, key=lambda f: (f[1], f[0])):
        if cost < cheapest * (1 - 1e-9):
            cheapest = cost
            front.append(_point(problem, runs[number], cost, seconds, chosen=number == chosen[2]))
    return runs[chosen[2]], front


def _point(problem: Problem, run: R, cost: float, seconds: float, *, chosen: bool) -> FrontPoint:
    best = run.evaluator.best
    assert best is not None
    classes = Counter(problem.fleet.classes[int(c)] for g in best.groups for c in problem.fleet.device_class[g.memory.devices])
    return FrontPoint(
        throughput_samples_per_s=problem.work.sequences / seconds,
        iteration_time_s=seconds,
        cost_per_sample=cost,
        devices=dict(sorted(classes.items())),
        chosen=chosen,
    )
