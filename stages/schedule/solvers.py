"""The solvers by name, behind one interface: they put the best plan they find into the evaluator, and report what they spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stages.schedule.cost.iteration import make_ready
from stages.schedule.draft import Draft
from stages.schedule.exact.ready import ready_to_prove
from stages.schedule.exact.solver import exact
from stages.schedule.problem import Problem
from stages.schedule.search.auto.solver import auto, ready
from stages.schedule.search.baselines.plain_ea import deap
from stages.schedule.search.baselines.streamrl import streamrl
from stages.schedule.search.baselines.verl import verl
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.fewer import in_parts
from stages.schedule.search.nested_halving import SearchReport, sha_ea
from stages.schedule.search.random_search import random_search
from stages.schedule.variant import evenly


@dataclass(frozen=True)
class Solver:
    """``run`` searches (evaluator, seed, earlier plans as starts). ``sees``: the problem as its method knows it.

    ``ready``: compiles or loads what it runs on, before its clock starts. ``baseline``: its plan is left as the method made it; devices it
    leaves idle are not put to use afterwards. ``counts``: it keeps constraints.max_devices by itself; any other is given parts of the fleet
    that are no larger. ``seeded``: another seed is another search.
    """

    run: Callable[[Evaluator, int, Sequence[Draft]], SearchReport]
    sees: Callable[[Problem], Problem] = lambda problem: problem
    baseline: bool = False
    counts: bool = False
    seeded: bool = True
    ready: Callable[[Problem], None] = make_ready

    def search(self, evaluator: Evaluator, seed: int, warm: Sequence[Draft]) -> SearchReport:
        """Run within constraints.max_devices."""
        return self.run(evaluator, seed, warm) if self.counts else in_parts(self.run, evaluator, seed, warm)


def _exact(*, branching: bool) -> Solver:
    def run(evaluator: Evaluator, seed: int, warm: Sequence[Draft]) -> SearchReport:
        return exact(evaluator, seed=seed, warm=warm, branching=branching)

    return Solver(run, counts=True, seeded=False, ready=ready_to_prove)


SOLVERS: dict[str, Solver] = {
    "auto": Solver(lambda evaluator, seed, warm: auto(evaluator, seed=seed, warm=warm), ready=ready),
    "sha-ea": Solver(lambda evaluator, seed, warm: sha_ea(evaluator, seed=seed, warm=warm), counts=True),
    "sha-ea-published": Solver(lambda evaluator, seed, warm: sha_ea(evaluator, seed=seed, warm=warm, published=True), counts=True),
    "exact": _exact(branching=True),
    "ilp": _exact(branching=False),
    "verl": Solver(lambda evaluator, seed, warm: verl(evaluator), sees=evenly, baseline=True, seeded=False),
    "streamrl": Solver(lambda evaluator, seed, warm: streamrl(evaluator), sees=evenly, baseline=True, seeded=False),
    "deap": Solver(lambda evaluator, seed, warm: deap(evaluator, seed=seed), baseline=True),
    "random": Solver(lambda evaluator, seed, warm: random_search(evaluator, seed=seed), baseline=True),
}


def solver_named(name: str) -> tuple[str, Solver]:
    """The solver a request names, and its own name."""
    return name, SOLVERS[name]
