"""Plans near the one in force: the objective is an iteration's seconds with those of moving, spread over a horizon of iterations.

Whatever solver searched first: its improving plans, the plan in force as it stands, and what that plan becomes on the fleet as it is are
judged by this objective, and an evolution from the best of them goes on under it. The plan in force is kept unless another is better by the
objective, so on a fleet that has not changed nothing moves for a gain that does not pay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from artifacts.holdings import tasklets, tasklets_moved
from artifacts.plan import Plan
from artifacts.search import Moves
from artifacts.units import show_bytes, show_seconds
from stages.schedule.alike import renamed
from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.documents import plan_document, price_plan
from stages.schedule.draft import Draft
from stages.schedule.legality import broken_rules
from stages.schedule.moving import Moving
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.evolution import POPULATION, OperatorCount, Population, evolve

NEAR_FRACTION = 0.4
"""Share of the budget for the search under this objective; the solver has the rest."""
WORTH = 1e-9
"""Relative gain below which a plan does not take the place of an earlier one."""


def price_as_it_stands(problem: Problem, plan: Plan) -> PlanPrice | None:
    """An earlier plan on this fleet, rank by rank as it is; None where a rule of this problem keeps it from running."""
    here = plan.model_copy(update={"topology_fingerprint": problem.topology.fingerprint})
    return None if broken_rules(problem, here) else price_plan(problem, here)


class Near:
    """The best plan by the objective so far: ``price``, and ``draft`` where it is one of the search's (not the plan in force itself)."""

    def __init__(self, evaluator: Evaluator, in_force: Plan, *, horizon: int) -> None:
        self.price: PlanPrice | None = None
        self.draft: Draft | None = None
        self._evaluator, self._horizon = evaluator, horizon
        self._moving = Moving(evaluator.problem, in_force)
        self._total = float("inf")
        standing = price_as_it_stands(evaluator.problem, in_force)
        if standing is not None and standing.feasible:
            self._take(standing, None)

    def judge(self, draft: Draft) -> PlanPrice | None:
        """A plan's price with moving in it, which is what the evolution goes by; the best is remembered as it is."""
        price = self._evaluator.plan(draft)
        if price is None or not price.feasible:
            return price
        return replace(price, iteration_s=self._take(price, draft))

    def search(self, starts: Sequence[Draft], seed: int) -> dict[str, OperatorCount]:
        """Judge the starts and what the solver found on its way, and evolve the best of them until the budget is spent."""
        population, counts = Population(), dict[str, OperatorCount]()
        for draft in dict.fromkeys([*starts, *self._evaluator.improved[-POPULATION:]]):
            for version in dict.fromkeys([draft, self._renamed(draft)]):
                judged = self.judge(version)
                if judged is not None:
                    population.add(judged.cost, version)
        self._evaluator.known.clear()  # what the solver has seen was not judged by this objective
        evolve(
            self._evaluator,
            population,
            share=float("inf"),
            rng=random.Random(seed),
            free=True,
            counts=counts,
            score=lambda _, draft: self.judge(draft),
        )
        return {f"near the plan in force: {name}": count for name, count in counts.items()}

    def _renamed(self, draft: Draft) -> Draft:
        price = self._evaluator.plan(draft)
        return draft if price is None else renamed(self._evaluator.problem, draft, price, self._moving)

    def judge_fastest(self) -> None:
        """Judge the fastest plan, which may have been found after the search (by putting idle devices to use)."""
        best, draft = self._evaluator.best, self._evaluator.best_draft
        if best is not None and draft is not None:
            self._take(best, draft)
            self.judge(self._renamed(draft))

    def _take(self, price: PlanPrice, draft: Draft | None) -> float:
        """Seconds of an iteration with its share of moving."""
        total = price.iteration_s + self._moving.of(price).seconds / self._horizon
        if total < self._total * (1 - WORTH):
            self.price, self.draft, self._total = price, draft, total
        return total


def moves_of(
    problem: Problem, in_force: Plan, plan: Plan, price: PlanPrice, *, horizon: int | None = None, fastest: PlanPrice | None = None
) -> Moves:
    """What ``plan`` changes against the plan in force; ``horizon`` and the ``fastest`` plan found where moving was in the objective."""
    fetch, standing = Moving(problem, in_force).of(price), price_as_it_stands(problem, in_force)
    moves = Moves(
        tasklets=len(tasklets(plan)),
        moved=tasklets_moved(in_force, plan),
        fetch_bytes=round(fetch.total_bytes),
        moving_s=fetch.seconds,
        stays_s=standing.iteration_s if standing is not None else None,
    )
    if horizon is None or fastest is None:
        return moves
    other = plan_document(problem, fastest, solver="", idle={}, reasons={})
    return moves.model_copy(
        update={
            "horizon_iterations": horizon,
            "fastest_s": fastest.iteration_s,
            "fastest_moved": tasklets_moved(in_force, other),
        }
    )


def sentence(moves: Moves, iteration_s: float) -> str:
    """What a person is told of the moves."""
    if moves.moved == 0 and moves.fetch_bytes == 0:
        text = f"Against the plan in force none of the {moves.tasklets} tasklets moves"
    else:
        text = (
            f"Against the plan in force {moves.moved} of {moves.tasklets} tasklets move: {show_bytes(moves.fetch_bytes)} to fetch, "
            f"about {show_seconds(moves.moving_s)} over the links"
        )
    if moves.horizon_iterations is None or moves.fastest_s is None:
        return text + "."
    text += f". Moving counts over {moves.horizon_iterations:,} iterations"
    slower = (iteration_s - moves.fastest_s) / iteration_s
    if slower <= WORTH:
        return text + "; no faster plan was found."
    return text + (
        f"; the fastest plan found moves {moves.fastest_moved} and takes {show_seconds(moves.fastest_s)} an iteration, "
        f"{show_seconds(iteration_s - moves.fastest_s)} ({slower:.1%}) less than this one."
    )
