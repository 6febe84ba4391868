"""``exact`` and ``ilp``: a good plan first, then every column that could beat it, then the best choice among them and its bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from artifacts.search import Arm
from stages.schedule.draft import Draft
from stages.schedule.exact.branch import branch
from stages.schedule.exact.cells import Cells, build_cells
from stages.schedule.exact.column import Column
from stages.schedule.exact.columns import Catalogue, enumerate_columns
from stages.schedule.exact.ilp import solve_programme
from stages.schedule.exact.lattice import Lattice
from stages.schedule.exact.outcome import Outcome
from stages.schedule.exact.prune import promising
from stages.schedule.search.auto.solver import auto
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.fewer import in_parts
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.proof import Proof

FIRST_PLAN_FRACTION, FIRST_PLAN_MOST_S = 0.2, 10.0
ABOVE_INCUMBENT = 1 + 1e-7
"""The incumbent's own columns stay in: the programme then finds its value again, which is the check that both price alike."""
AGREEMENT = 1e-6
JUDGE_S = 30.0
"""Seconds for the integer programme to say the same as branch and bound."""

NOTHING_BETTER = ", nothing as good as the first plan"
ALL_PLANS = "all plans: every grouping, device choice, order of devices, degree and micro-batch size of the search space"
IN_MACHINE_ORDER = (
    "plans whose groups take their devices machine by machine (every order of machines, or the rotations of one for many), "
    "with every grouping, device choice, degree and micro-batch size"
)


def exact(evaluator: Evaluator, *, seed: int, warm: Sequence[Draft] = (), branching: bool) -> SearchReport:
    """Search a little with ``auto``, then prove. A budget of evaluations bounds the first search; a budget of seconds bounds everything.

    ``branching``: branch and bound proves the optimum, and the integer programme judges it; else the programme does all by itself.
    Out of time, what is best so far stands in the evaluator, and the bound is what was proved until then.
    """
    problem, budget = evaluator.problem, evaluator.budget
    report = _first_plan(evaluator, seed, warm)
    tick, cells = _Ticker(evaluator), build_cells(problem)
    cutoff = evaluator.best.iteration_s * ABOVE_INCUMBENT if evaluator.best else float("inf")

    def left() -> float | None:
        return None if budget.seconds is None else budget.seconds - evaluator.seconds

    def stop() -> bool:
        tick()
        return (left() or 1.0) <= 0

    catalogue = enumerate_columns(problem, cells, cutoff_s=cutoff, stop=stop)
    evaluator.evaluations += catalogue.evaluations
    columns, arms, outcome = catalogue.columns, report.arms, None
    size = f"of {len(catalogue.columns):,} columns"
    if branching and catalogue.finished and Lattice.fits(cells.counts):
        fewer = promising(problem, columns, cells.counts, cutoff)
        adopt = partial(_adopt, evaluator, cells)
        outcome = branch(problem, fewer, cells, cutoff_s=cutoff, stop=stop, on_better=adopt)
        arms = [*arms, _arm(f"branch and bound: {outcome.rounds:,} nodes {size}", outcome, catalogue.evaluations)]
        if evaluator.best:
            cutoff = evaluator.best.iteration_s * ABOVE_INCUMBENT
    if outcome is None or outcome.finished:
        known = outcome
        outcome, used = _programme(evaluator, catalogue, cells, cutoff, left, tick, JUDGE_S if known else None)
        arms = [*arms, _arm(f"integer programme: {used:,} {size}, {outcome.rounds} rounds", outcome, 0 if known else catalogue.evaluations)]
        if known is not None:
            if outcome.finished and not _agree(outcome, known):
                raise AssertionError(f"branch and bound says {known.objective_s} s, the integer programme {outcome.objective_s}")
            outcome = known
    best = evaluator.best.iteration_s if evaluator.best else None
    if not catalogue.finished or best is None:
        return SearchReport(arms=arms, operators=report.operators)
    scope = ALL_PLANS if catalogue.complete else IN_MACHINE_ORDER
    proof = Proof(bound_s=min(outcome.bound_s, best), optimal=outcome.finished, scope=scope)
    return SearchReport(arms=arms, operators=report.operators, proof=proof)


def _agree(one: Outcome, other: Outcome) -> bool:
    """Whether both found the same value, or both that nothing is as good as the plan they started from."""
    if one.chosen is None or other.chosen is None:
        return one.chosen is other.chosen
    return abs(one.objective_s - other.objective_s) <= AGREEMENT * other.objective_s


def _arm(name: str, outcome: Outcome, evaluations: int) -> Arm:
    """What a method came to; says where it was not finished, and where the first plan, free of the scope, is better than all in it."""
    best = outcome.objective_s if outcome.chosen is not None else None
    came_to = ", not finished" if not outcome.finished else NOTHING_BETTER if best is None else ""
    return Arm(name=name + came_to, evaluations=evaluations, best_s=best, rounds=outcome.rounds)


def _programme(
    evaluator: Evaluator,
    catalogue: Catalogue,
    cells: Cells,
    cutoff: float,
    left: Callable[[], float | None],
    tick: Callable[[], None],
    most_s: float | None,
) -> tuple[Outcome, int]:
    """The integer programme's outcome, its choice adopted, and the columns it was given."""
    problem, columns = evaluator.problem, catalogue.columns
    while True:  # without a first plan the first solution is the cut-off of the second, because tolerances are relative to it
        known = evaluator.best is not None
        if not known:
            cutoff = 4 * sum(max((c.seconds[at] for c in columns), default=0.0) for at in range(3))
        if catalogue.finished and columns:
            columns = promising(problem, columns, cells.counts, cutoff)
        seconds = min((s for s in (left(), most_s) if s is not None), default=None)
        seconds = None if seconds is None else max(0.1, seconds)
        outcome = solve_programme(problem, columns, cells, cutoff_s=cutoff, seconds=seconds, check=tick)
        if outcome.chosen is not None:
            _adopt(evaluator, cells, outcome.chosen, outcome.objective_s)
        if outcome.chosen is None or known:
            return outcome, len(columns)
        cutoff = outcome.objective_s * ABOVE_INCUMBENT


def _adopt(evaluator: Evaluator, cells: Cells, chosen: list[Column], seconds: float) -> None:
    """Price a method's choice as any plan, and insist that both say the same."""
    devices = cells.placed([c.draft.devices for c in chosen])
    price = evaluator.plan(Draft(groups=tuple(replace(c.draft, devices=d) for c, d in zip(chosen, devices, strict=True))))
    if price is None or abs(price.cost - seconds) > AGREEMENT * seconds:
        raise AssertionError(f"an exact method says {seconds} s, the cost model {price and price.cost}")


def _first_plan(evaluator: Evaluator, seed: int, warm: Sequence[Draft]) -> SearchReport:
    budget = evaluator.budget
    share = None if budget.seconds is None else min(budget.seconds * FIRST_PLAN_FRACTION, FIRST_PLAN_MOST_S)
    first = Evaluator(evaluator.problem, Budget(evaluations=budget.evaluations, seconds=share), on_progress=evaluator.on_progress)
    try:
        return in_parts(lambda part, number, starts: auto(part, seed=number, warm=starts), first, seed, warm)
    finally:
        evaluator.evaluations += first.evaluations
        for draft in (first.best_draft, first.nearest_draft):
            if draft is not None:
                evaluator.plan(draft)


class _Ticker:
    """Reports progress twice a second at most; the report may raise, which ends the search."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self._last = evaluator, 0.0

    def __call__(self) -> None:
        now, evaluator = time.monotonic(), self._evaluator
        if now - self._last > 0.5:
            self._last = now
            evaluator.on_progress(evaluator.seconds, evaluator.budget.seconds or 0.0, evaluator.best.cost if evaluator.best else None)
