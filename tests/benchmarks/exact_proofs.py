"""The exact optimum of the mixed instances: ``python -m tests.benchmarks.exact_proofs`` proves what is missing and writes infra/docs/exact.md.

Results are kept line by line in ``exact_proofs.jsonl``, so that a run that was stopped goes on where it was; a line that was made with
a cost model that prices otherwise is made again. ``--page`` only writes the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from stages.schedule.documents import price_plan
from stages.schedule.parameters import ScheduleParameters, SolverName
from stages.schedule.solve import Solution, solve
from tests.benchmarks.exact_page import page
from tests.benchmarks.instances import Instance, instances
from tests.benchmarks.random_plans import random_plans

RESULTS = Path(__file__).with_suffix(".jsonl")
PAGE = Path(__file__).parents[2] / "infra/docs/exact.md"
COMPARED: tuple[SolverName, ...] = ("auto", "sha-ea")
SAMPLE = 10
"""Plans of an instance whose prices say which cost model a line was made with."""

Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Proofs of the twenty mixed instances, and the page about them.")
    parser.add_argument("names", nargs="*", help="beginnings of names; none: all")
    parser.add_argument("--seconds", type=float, default=600.0, help="of each proof at most")
    parser.add_argument("--ilp", type=float, default=0.0, help="seconds of the integer programme alone, too; 0: not run")
    parser.add_argument("--compare", action="store_true", help="run the searches, too, at their default budget of evaluations")
    parser.add_argument("--page", action="store_true", help="only write the page from the lines there are")
    arguments = parser.parse_args()
    cost_model()
    for instance in [] if arguments.page else _wanted(arguments.names):
        _make(instance, "exact", arguments.seconds)
        if arguments.ilp:
            _make(instance, "ilp", arguments.ilp)
        for solver in COMPARED if arguments.compare else ():
            _make(instance, solver, None)
    PAGE.write_text(page(instances(), known()), encoding="utf-8")


def _wanted(names: list[str]) -> list[Instance]:
    """Small fleets first."""
    chosen = [i for i in instances() if not names or any(i.name.startswith(n) for n in names)]
    return sorted(chosen, key=lambda i: len(i.topology.devices))


def known() -> dict[tuple[str, str], Line]:
    """Lines by instance and solver, the last of each."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    return {(line["instance"], line["solver"]): line for line in lines}


@cache
def cost_model() -> str:
    """Digest of what the cost model says of some plans of every instance, to ten digits: a change that moves no price keeps the proofs."""
    found = hashlib.sha256()
    for instance in instances():
        for problem, plan in islice(random_plans(instance.job, instance.topology, seed=0), SAMPLE):
            price = price_plan(problem, plan)
            assert price is not None
            found.update(f"{price.iteration_s:.9e} {price.weight_update_s:.9e} {[f'{g.memory.peak().max():.9e}' for g in price.groups]}".encode())
    return found.hexdigest()[:12]


def _make(instance: Instance, solver: SolverName, seconds: float | None) -> None:
    """Solve, unless that is known, and append what came out."""
    if known().get((instance.name, solver), {}).get("cost_model") == cost_model():
        return
    wall, cpu = time.monotonic(), time.process_time()
    parameters = ScheduleParameters(solver=solver, seconds=seconds) if seconds else ScheduleParameters(solver=solver)
    found = solve(instance.job, instance.topology, parameters=parameters)
    line = _line(found) | {"wall_s": round(time.monotonic() - wall, 1), "cpu_s": round(time.process_time() - cpu, 1)}
    line = {"instance": instance.name, "solver": solver, "cost_model": cost_model()} | line
    with RESULTS.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(json.dumps(line, ensure_ascii=False), flush=True)


def _line(found: Solution) -> Line:
    search = found.search
    methods = [arm for arm in search.arms if arm.name.startswith(("branch and bound", "integer programme"))]
    return {
        "status": search.status,
        "iteration_s": found.prediction.iteration_time_s,
        "bound_s": search.proved_bound_s,
        "scope": search.proof_scope,
        "methods": {arm.name: arm.best_s for arm in methods},
        "layouts": sum(arm.evaluations for arm in methods),
        "devices_used": sum(len(g.devices) for g in found.plan.groups),
    }


if __name__ == "__main__":
    main()
