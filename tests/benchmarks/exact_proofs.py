"""What the integer programme proves on the mixed instances: ``python -m tests.benchmarks.exact_proofs [--seconds 180] [instance …]``.

One line an instance: the optimum, the bound, the seconds, which plans the proof is about, and how far the named solvers were from it at the
same number of seconds.
"""

from __future__ import annotations

import argparse
import time

from stages.schedule.parameters import ScheduleParameters
from stages.schedule.solve import Solution, solve
from tests.benchmarks.instances import Instance, instances

COMPARED = ("auto", "sha-ea")


def main() -> None:
    parser = argparse.ArgumentParser(description="Proofs of the integer programme on the twenty mixed instances.")
    parser.add_argument("names", nargs="*", help="beginnings of names; none: all")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--compare", type=float, default=0.0, help="seconds for each other solver; 0: not run")
    arguments = parser.parse_args()
    for instance in instances():
        if not arguments.names or any(instance.name.startswith(n) for n in arguments.names):
            print(proof_line(instance, seconds=arguments.seconds, compare=arguments.compare), flush=True)


def proof_line(instance: Instance, *, seconds: float, compare: float) -> str:
    started = time.monotonic()
    exact = _solve(instance, "ilp", seconds)
    spent, best = time.monotonic() - started, exact.prediction.iteration_time_s
    bound, scope = exact.search.proved_bound_s, exact.search.proof_scope.partition(":")[0].partition(" whose")[0]
    said = f"{exact.search.status:8} {best:10.4f} s, bound {'none' if bound is None else f'{bound:10.4f} s'}, {spent:6.1f} s, {scope}"
    gaps = "".join(
        f", {name} {_solve(instance, name, compare).prediction.iteration_time_s / best - 1:+.2%}" for name in COMPARED if compare
    )
    return f"{instance.name:32} {said}; {exact.search.arms[-1].name}{gaps}"


def _solve(instance: Instance, solver: str, seconds: float) -> Solution:
    return solve(instance.job, instance.topology, parameters=ScheduleParameters(solver=solver, seconds=seconds))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
