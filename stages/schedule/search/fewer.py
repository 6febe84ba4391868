"""At most so many devices, for solvers that know no such limit: they search parts of the fleet that are no larger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from artifacts.search import Arm
from stages.schedule.cost.bounds import roofline_s
from stages.schedule.draft import Draft
from stages.schedule.preconditions import preconditions
from stages.schedule.problem import Problem
from stages.schedule.search.construct import device_orders
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import bundles, mask_of
from stages.schedule.variant import without

MOST_PARTS = 8

Mask = NDArray[np.bool_]
Run = Callable[[Evaluator, int, Sequence[Draft]], SearchReport]


def in_parts(run: Run, evaluator: Evaluator, seed: int, warm: Sequence[Draft]) -> SearchReport:
    """Run a solver on the whole fleet where the job allows that many devices, else on several parts, sharing the budget alike.

    The evaluator holds the best plan of all parts. What is proved of a part is no proof for the fleet, and is dropped.
    """
    problem = evaluator.problem
    if problem.usable.sum() <= problem.most_devices:
        return run(evaluator, seed, warm)
    found = SearchReport(arms=[], operators={})
    parts = _parts(problem)
    for number, part in enumerate(parts):
        turns = len(parts) - number
        seconds = None if evaluator.budget.seconds is None else max(0.0, evaluator.budget.seconds - evaluator.seconds) / turns
        left = max(1, (evaluator.budget.evaluations - evaluator.evaluations) // turns)
        inner = Evaluator(part, Budget(evaluations=left, seconds=seconds), on_progress=_told_by(evaluator), without=evaluator.without)
        try:
            report = run(inner, seed, warm)
        finally:
            evaluator.evaluations += inner.evaluations
            for draft in (inner.best_draft, inner.nearest_draft):
                if draft is not None:
                    evaluator.plan(draft)
        best = inner.best.iteration_s if inner.best else None
        name = f"part {number + 1} of {len(parts)}: {_named(part)}"
        found.arms.append(Arm(name=name, evaluations=inner.evaluations, best_s=best, rounds=1))
        found.operators.update(report.operators)
    return found


def _told_by(evaluator: Evaluator) -> Callable[[float, float, float | None], None]:
    """Progress of a part as progress of the whole search: the best of all parts so far."""

    def told(done: float, total: float, best: float | None) -> None:
        costs = [c for c in (best, evaluator.best.cost if evaluator.best else None) if c is not None]
        in_seconds = evaluator.budget.seconds is not None
        so_far = evaluator.seconds if in_seconds else evaluator.evaluations + done
        evaluator.on_progress(so_far, evaluator.budget.seconds or evaluator.budget.evaluations, min(costs, default=None))

    return told


def _named(part: Problem) -> str:
    machines: dict[str, int] = {}
    for device, here in zip(part.fleet.devices, part.usable, strict=True):
        if here:
            machines[device.machine] = machines.get(device.machine, 0) + 1
    shown = [f"{n} of {m}" for m, n in machines.items()]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more machines" if len(shown) > 6 else "")


def _parts(problem: Problem) -> list[Problem]:
    """Parts with as many devices as the job allows and a place for every task, those with the lowest roofline first."""
    usable, most = problem.usable, problem.most_devices
    masks = [mask_of(problem, b) for b in bundles(problem)]
    found: dict[bytes, Problem] = {}
    for order in _orders(problem):
        mine = [d for d in order if usable[d]]
        reserved = [d for mask in masks if not mask[usable].all() for d in [d for d in mine if mask[d]][: max(1, most // len(masks))]]
        left_out = usable.copy()
        left_out[list(dict.fromkeys([*reserved, *mine]))[:most]] = False
        part = without(problem, left_out, "not in this part of the fleet")
        if not preconditions(part):
            found.setdefault(left_out.tobytes(), part)
    return sorted(found.values(), key=roofline_s)[:MOST_PARTS]


def _orders(problem: Problem) -> Iterator[tuple[int, ...]]:
    """All devices by place, speed and memory; and from each region on, the near devices first, the fast ones of them first."""
    yield from device_orders(problem)
    fleet = problem.fleet
    speed = np.array([c.best for c in fleet.curves])[fleet.device_class]
    for region in range(len(fleet.regions)):
        here = np.flatnonzero(fleet.region == region)
        if len(here):
            yield tuple(int(d) for d in np.lexsort((fleet.machine, -speed, fleet.latency_s[here[0]], fleet.region != region)))
