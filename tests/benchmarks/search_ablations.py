"""What each part of the search is worth: ``python -m tests.benchmarks.search_ablations`` runs what is missing and writes infra/docs/search.md.

Both searches as they are, then without one part, all with the same processor time, on the four published settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.benchmarks.search_page import write_page
from tests.benchmarks.search_runs import Case, make, settings

PARTS = ("halving", "local-search", "balancing", "seeds")
SOLVERS = ("auto", "sha-ea")
SECONDS = 2.0
"""Of processor time, a second of two cores."""


def cases(seconds: float, seeds: int, solvers: Sequence[str], fleets: Sequence[str]) -> list[Case]:
    """Every setting, then every other seed."""
    off = [(), *((part,) for part in PARTS)]
    return [Case(name, solver, seconds, seed, parts) for seed in range(seeds) for name in fleets for solver in solvers for parts in off]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=SECONDS, help="processor time of each search")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--solvers", nargs="*", default=SOLVERS)
    options.add_argument("--fleets", nargs="*", default=settings())
    given = options.parse_args()
    make(cases(given.seconds, given.seeds, given.solvers, given.fleets))
    write_page()


if __name__ == "__main__":
    main()
