"""``deap``: a plain evolutionary algorithm over the whole encoding, written with the DEAP library.

A genome holds a group for every bundle of tasks, a group (or idleness) and a place in the order for every device, and for every group a
gene that selects among its cuts and one that selects rollout's degree. No seeds, no knowledge of the problem: tournament selection,
uniform crossover, genes drawn anew as mutation.
"""

from __future__ import annotations

import random
from typing import Any

from artifacts.errors import InputError
from stages.schedule.draft import Cut, Draft
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.evolution import OperatorCount
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import TASK_ORDER, bundles, cuts, draft_group, group_allowed, mask_of, rollout_tps

POPULATION = 64
CROSSOVER, MUTATION = 0.6, 0.4
"""Probability that an offspring comes from two parents; that it is mutated instead. They add up to one (``varOr``)."""
GENE_MUTATION = 0.05
NO_PLAN = 1e15
"""Fitness of a genome that is no plan: behind every plan, fitting or not."""


class Genome:
    """The lengths of the parts of a genome, and what they mean. All genes are in [0, 1)."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.bundles = problem, bundles(problem)
        self.length = len(self.bundles) + 2 * problem.fleet.size + 2 * len(self.bundles)

    def decode(self, genes: list[float]) -> Draft | None:
        """The plan a genome means; None where a group gets no device, no cut, or tasks the engine does not run together."""
        problem, labels = self.problem, len(self.bundles)
        size = problem.fleet.size
        of_bundle = [int(g * labels) for g in genes[:labels]]
        of_device = [int(g * (labels + 1)) - 1 for g in genes[labels : labels + size]]
        place, choice = genes[labels + size : labels + 2 * size], genes[labels + 2 * size :]
        groups = []
        for label in sorted(set(of_bundle)):
            parts = [b for b, mine in zip(self.bundles, of_bundle, strict=True) if mine == label]
            tasks = tuple(sorted((t for b in parts for t in b), key=TASK_ORDER.index))
            if not group_allowed(problem, tasks):
                return None
            mask = mask_of(problem, tasks)
            devices = tuple(sorted((d for d in range(size) if of_device[d] == label and mask[d]), key=place.__getitem__))
            if not devices:
                return None
            options: tuple[Cut | None, ...] = (None,) if tasks == ("rollout",) else cuts(problem, tasks, devices, thorough=True)
            tps = rollout_tps(problem, len(devices)) if "rollout" in tasks else [0]
            if not options or not tps:
                return None
            cut, tp = options[int(choice[2 * label] * len(options))], tps[int(choice[2 * label + 1] * len(tps))]
            groups.append(draft_group(problem, tasks, devices, cut, tp))
        return Draft(groups=tuple(groups))


def deap(evaluator: Evaluator, *, seed: int) -> SearchReport:
    """Generations until the budget is spent; the evaluator holds the best plan.

    Raises:
        InputError: the library is not installed.
    """
    try:
        from deap import algorithms, base, tools
    except ImportError:
        raise InputError("solver deap needs the DEAP library, which is not installed", fix="pip install 'hetrl[baselines]'") from None
    genome = Genome(evaluator.problem)

    class Fitness(base.Fitness):  # type: ignore[misc]
        weights = (-1.0,)

    class Individual(list):  # type: ignore[type-arg]
        def __init__(self, genes: list[float]) -> None:
            super().__init__(genes)
            self.fitness = Fitness()

    counts = {"plan": OperatorCount(), "no plan": OperatorCount()}

    def judge(individual: Any) -> tuple[float]:
        draft = genome.decode(individual)
        price = evaluator.plan(draft) if draft is not None else None
        counts["no plan" if price is None else "plan"].tried += 1
        if price is None:
            evaluator.evaluations += draft is None
        return (NO_PLAN if price is None else price.cost,)

    def redraw(individual: Any) -> tuple[Any]:
        for i in range(len(individual)):
            if random.random() < GENE_MUTATION:
                individual[i] = random.random()
        return (individual,)

    toolbox = base.Toolbox()
    toolbox.register("mate", tools.cxUniform, indpb=0.5)
    toolbox.register("mutate", redraw)
    state = random.getstate()
    random.seed(seed)  # DEAP draws from the module's own generator
    try:
        population = [Individual([random.random() for _ in range(genome.length)]) for _ in range(POPULATION)]
        offspring = population
        while True:
            for individual in offspring:
                if evaluator.left() <= 0:
                    return SearchReport(arms=[], operators=counts)
                if not individual.fitness.valid:
                    individual.fitness.values = judge(individual)
            if offspring is not population:
                population = tools.selBest(population, 1) + tools.selTournament(population + offspring, POPULATION - 1, tournsize=3)
            offspring = algorithms.varOr(population, toolbox, POPULATION, CROSSOVER, MUTATION)
    finally:
        random.setstate(state)
