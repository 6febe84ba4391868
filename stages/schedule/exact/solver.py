"""``ilp``: a good plan first, then every column that could beat it, then the integer programme's choice among them and its bound."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from artifacts.search import Arm
from stages.schedule.draft import Draft
from stages.schedule.exact.cells import Cells, build_cells
from stages.schedule.exact.columns import enumerate_columns
from stages.schedule.exact.ilp import Outcome, solve_programme
from stages.schedule.exact.prune import promising
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.nested_halving import SearchReport, sha_ea
from stages.schedule.search.proof import Proof

FIRST_PLAN_FRACTION, FIRST_PLAN_MOST_S = 0.2, 10.0
ABOVE_INCUMBENT = 1 + 1e-7
"""The incumbent's own columns stay in: the programme then finds its value again, which is the check that both price alike."""
AGREEMENT = 1e-6

ALL_PLANS = "all plans: every grouping, device choice, order of devices, degree and micro-batch size of the search space"
IN_MACHINE_ORDER = (
    "plans whose groups take their devices machine by machine (every order of machines, or the rotations of one for many), "
    "with every grouping, device choice, degree and micro-batch size"
)


def exact(evaluator: Evaluator, *, seed: int, warm: Sequence[Draft] = ()) -> SearchReport:
    """Search a little, then prove. A budget of evaluations bounds the first search; a budget of seconds bounds everything.

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
    columns, outcome = catalogue.columns, None
    for _ in range(2):  # without a first plan the first solution is the cut-off of the second, because tolerances are relative to it
        known = evaluator.best is not None
        if not known:
            cutoff = 4 * sum(max((c.seconds[at] for c in columns), default=0.0) for at in range(3))
        if catalogue.finished and columns:
            columns = promising(problem, columns, cells.counts, cutoff)
        outcome = solve_programme(problem, columns, cells, cutoff_s=cutoff, seconds=max(0.1, s) if (s := left()) else None, check=tick)
        if outcome.chosen is None or known:
            break
        _adopt(evaluator, cells, outcome)
        cutoff = outcome.objective_s * ABOVE_INCUMBENT
    assert outcome is not None
    _adopt(evaluator, cells, outcome)
    best = evaluator.best.iteration_s if evaluator.best else None
    name = f"integer programme: {len(columns):,} of {len(catalogue.columns):,} columns, {outcome.rounds} rounds"
    arms = [*report.arms, Arm(name=name, evaluations=catalogue.evaluations, best_s=best, rounds=outcome.rounds)]
    if not catalogue.finished or best is None:
        return SearchReport(arms=arms, operators=report.operators)
    scope = ALL_PLANS if catalogue.complete else IN_MACHINE_ORDER
    proof = Proof(bound_s=min(outcome.bound_s, best), optimal=outcome.finished, scope=scope)
    return SearchReport(arms=arms, operators=report.operators, proof=proof)


def _adopt(evaluator: Evaluator, cells: Cells, outcome: Outcome) -> None:
    """Price the programme's choice as any plan, and insist that both say the same."""
    if outcome.chosen is not None:
        devices = cells.placed([c.draft.devices for c in outcome.chosen])
        price = evaluator.plan(Draft(groups=tuple(replace(c.draft, devices=d) for c, d in zip(outcome.chosen, devices, strict=True))))
        if price is None or abs(price.cost - outcome.objective_s) > AGREEMENT * outcome.objective_s:
            raise AssertionError(f"the programme says {outcome.objective_s} s, the cost model {price and price.cost}")


def _first_plan(evaluator: Evaluator, seed: int, warm: Sequence[Draft]) -> SearchReport:
    budget = evaluator.budget
    share = None if budget.seconds is None else min(budget.seconds * FIRST_PLAN_FRACTION, FIRST_PLAN_MOST_S)
    first = Evaluator(evaluator.problem, Budget(evaluations=budget.evaluations, seconds=share), on_progress=evaluator.on_progress)
    try:
        return sha_ea(first, seed=seed, warm=warm)
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
