"""The default solver against the published algorithm and the baselines: ``python -m tests.benchmarks.search_quality``.

Four published settings of 64 GPUs (reconstructed), synchronous PPO of Qwen3-8B, and a fleet of 1,024 GPUs. Runs what ``search_quality.jsonl``
does not have yet, and writes infra/docs/search.md; ``--page`` only writes the page. Solvers that do not plan their budget (deap, random,
verl, streamrl) run once, for the longest time but one, unless ``--all``; what they had after shorter times is read from that run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.benchmarks.search_page import write_page
from tests.benchmarks.search_runs import LARGE, Case, make, settings

PLANNED = ("auto", "sha-ea", "sha-ea-published")
"""Their halving depends on the budget: each budget is a run of its own."""
ANYTIME = ("deap", "random", "streamrl", "verl")


def cases(seconds: Sequence[float], solvers: Sequence[str], fleets: Sequence[str], seeds: int) -> list[Case]:
    """Short budgets first; ``seconds`` are wall-clock of two cores."""
    found = [
        Case(name, solver, 2 * budget, seed)
        for budget in sorted(seconds)
        for seed in range(seeds)
        for solver in solvers
        if solver in PLANNED
        for name in fleets
    ]
    return found + [Case(name, solver, 2 * max(seconds)) for solver in solvers if solver in ANYTIME for name in fleets]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, nargs="*", default=[1.0, 10.0], help="of two cores")
    options.add_argument("--solvers", nargs="*", default=[*PLANNED, *ANYTIME])
    options.add_argument("--fleets", nargs="*", default=[*settings(), LARGE])
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--page", action="store_true", help="only write the page from the lines there are")
    given = options.parse_args()
    if not given.page:
        make(c for c in cases(given.seconds, given.solvers, given.fleets, given.seeds) if c.fleet != LARGE or c.solver == "auto")
    write_page()


if __name__ == "__main__":
    main()
