"""Searches of the published settings, one line of ``search_quality.jsonl`` each, so that a benchmark that was stopped goes on where it was.

Seconds of a budget are processor time of all threads, so that what else the machine does meets no solver more than another; what is compiled
is compiled before. A second of two cores is two seconds of processor time.
"""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from artifacts.catalog import models
from artifacts.job import Batch, Engine, Job, Lengths
from artifacts.topology import Topology
from stages.profile.basis import anchored
from stages.profile.inventory import build
from stages.profile.scenarios import SCENARIOS, scenario_inventory
from stages.schedule.cost.bounds import roofline_s
from stages.schedule.cost.iteration import PlanPrice, compose, price_group
from stages.schedule.documents import price_plan
from stages.schedule.draft import Draft
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.solvers import SOLVERS
from stages.schedule.variant import evenly, variant
from tests.benchmarks.kernel_speed import fleet
from tests.benchmarks.random_plans import random_plans

RESULTS = Path(__file__).with_name("search_quality.jsonl")
LARGE = "1,024 GPUs"
EVERY = 10**9
PARTS = {"layers": {"uneven_layers": False}, "batches": {"uneven_batches": False}, "both": {"uneven_layers": False, "uneven_batches": False}}
"""What of the load balancing is switched off in a plan that was found with it."""


@dataclass(frozen=True)
class Case:
    """One search. ``seconds``: of processor time of all threads."""

    fleet: str
    solver: str
    seconds: float
    seed: int = 0
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """``points``: (processor seconds, seconds of an iteration) of every better plan. ``unbalanced``: the best plan without load balancing of
    layers, of batches, of both; None where it cannot be laid out so."""

    cost_s: float | None
    evaluations: int
    cpu_s: float
    memory_gib: float
    bound_s: float
    points: tuple[tuple[float, float], ...] = ()
    unbalanced: dict[str, float | None] | None = None

    def at(self, seconds: float) -> float | None:
        """The best after some processor seconds; None: nothing that fits."""
        return min((cost for when, cost in self.points if when <= seconds), default=None)


class Metered(Evaluator):
    """An evaluator whose seconds are those of the processor, all threads together."""

    began: float = 0.0

    @property
    def seconds(self) -> float:
        return time.process_time() - self.began


def job(mode: str = "sync") -> Job:
    return Job(
        name="search",
        algorithm="ppo",
        mode=mode,  # type: ignore[arg-type]
        models={"actor": models()["Qwen3-8B"]},
        batch=Batch(prompts=384, responses_per_prompt=8, mini_batch_prompts=96, micro_batch_sequences=8),
        prompt_tokens=Lengths(mean=1024, max=1024),
        response_tokens=Lengths(mean=1024, max=1024),
        engine=Engine(recompute="full"),
    )


def topology(name: str) -> Topology:
    return fleet(1024) if name == LARGE else anchored(build(scenario_inventory(name), where=name), [])


def run(case: Case) -> Result:
    """Search a fresh problem: nothing that another search remembered."""
    solver = SOLVERS[case.solver]
    solver.ready(build_problem(job(), fleet(8)))
    problem = build_problem(job(), topology(case.fleet))
    seen = evenly(problem) if "balancing" in case.without else solver.sees(problem)
    evaluator = Metered(seen, Budget(evaluations=EVERY, seconds=case.seconds), without=frozenset(case.without))
    evaluator.began = time.process_time()
    solver.search(evaluator, case.seed, ())
    spent = evaluator.seconds
    best = evaluator.best_draft
    return Result(
        cost_s=evaluator.best.cost if evaluator.best else None,
        evaluations=evaluator.evaluations,
        cpu_s=round(spent, 2),
        memory_gib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        bound_s=round(roofline_s(problem), 3),
        points=tuple((round(p.seconds, 3), round(p.cost_s, 3)) for p in evaluator.trajectory),
        unbalanced=_unbalanced(problem, best) if best is not None and case.solver == "auto" and not case.without else None,
    )


def _unbalanced(problem: Problem, draft: Draft) -> dict[str, float | None]:
    """The same groups and cuts with a part of the load balancing switched off."""
    found: dict[str, float | None] = {}
    for name, rules in PARTS.items():
        plain = variant(problem, engine=problem.engine.model_copy(update=rules))
        made = [p for g in draft.groups if (p := price_group(plain, g)) is not None]
        price = compose(plain, made) if len(made) == len(draft.groups) else None
        found[name] = round(price.cost, 3) if price is not None and price.feasible else None
    return found


@cache
def prices() -> str:
    """Digest of what the cost model says of a few plans: lines that were made when it said otherwise are made again."""
    costs = [p.iteration_s for name in (SCENARIOS[0], SCENARIOS[-1]) for p in _priced(job(), topology(name))]
    return hashlib.sha256(repr([f"{c:.9g}" for c in costs]).encode()).hexdigest()[:12]


def _priced(work: Job, where: Topology) -> list[PlanPrice]:
    drawn = islice(random_plans(work, where, seed=0), 4)
    return [price for problem, plan in drawn if (price := price_plan(problem, plan)) is not None]


def known() -> dict[Case, Result]:
    """Results under the present cost model."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    found = {}
    for line in map(json.loads, text.splitlines()):
        if line.pop("prices") == prices():
            case, result = line["case"], line["result"]
            case["without"], result["points"] = tuple(case["without"]), tuple(tuple(p) for p in result["points"])
            found[Case(**case)] = Result(**result)
    return found


def make(cases: Iterable[Case]) -> None:
    """Run what is missing and append what came out."""
    for case in cases:
        if case in known():
            continue
        result = run(case)
        line = {"prices": prices(), "case": asdict(case), "result": asdict(result)}
        with RESULTS.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        without = f" without {', '.join(case.without)}" if case.without else ""
        cost = "nothing fits" if result.cost_s is None else f"{result.cost_s:.1f} s an iteration"
        print(f"{case.fleet}, {case.solver}{without}, {case.seconds:g} s: {cost}, {result.evaluations:,} evaluations", flush=True)


def settings() -> tuple[str, ...]:
    return SCENARIOS
