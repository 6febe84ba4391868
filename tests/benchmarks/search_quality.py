"""The default solver against the published algorithm and the baselines: ``python -m tests.benchmarks.search_quality [--seconds 1 10]``.

Four published settings of 64 GPUs (reconstructed), synchronous PPO of Qwen3-8B. Budgets of seconds are processor time of all threads, so
that what else the machine does meets no solver more than another; what is compiled is compiled before. Also the 1,024-GPU fleet: when the
first plan that fits was there. Writes infra/docs/search.md, after every setting.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from artifacts.catalog import models
from artifacts.job import Batch, Engine, Job, Lengths
from artifacts.topology import Topology
from stages.profile.basis import anchored
from stages.profile.inventory import build
from stages.profile.scenarios import SCENARIOS, scenario_inventory
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.solvers import SOLVERS
from tests.benchmarks.kernel_speed import fleet

PAGE = Path(__file__).resolve().parents[2] / "infra" / "docs" / "search.md"
TIMED = ("auto", "sha-ea", "deap", "random")
ONCE = ("verl", "streamrl")
EVERY = 10**9


@dataclass(frozen=True)
class Outcome:
    """``cost`` None: no plan that fits was found."""

    cost: float | None
    evaluations: int
    cpu_s: float


class Metered(Evaluator):
    """An evaluator whose seconds are those of the processor, all threads together."""

    @property
    def seconds(self) -> float:
        return time.process_time() - self.began

    began: float = 0.0


def metered(problem: Problem, budget: Budget) -> Metered:
    made = Metered(problem, budget)
    made.began = time.process_time()
    return made


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


def setting(name: str) -> Topology:
    return anchored(build(scenario_inventory(name), where=name), [])


def run(solver: str, problem: Problem, *, seed: int = 0, evaluations: int = EVERY, seconds: float | None = None) -> Outcome:
    chosen = SOLVERS[solver]
    chosen.ready(problem)
    evaluator = metered(chosen.sees(problem), Budget(evaluations=evaluations, seconds=seconds))
    started = time.process_time()
    chosen.search(evaluator, seed, ())
    return Outcome(evaluator.best.cost if evaluator.best else None, evaluator.evaluations, time.process_time() - started)


def table(budgets: list[dict[str, float]], names: list[str], seeds: int) -> Iterator[list[str]]:
    """All rows so far, after each: a row a setting and budget: seconds of an iteration (mean of the seeds) by solver, and the default over the published."""
    rows = [f"| setting | budget | {' | '.join((*TIMED, *ONCE))} | auto : sha-ea |", "|---|---|" + "---|" * (len(TIMED) + len(ONCE) + 1)]
    for name in names:
        problem = build_problem(job(), setting(name))
        once = [shown([run(solver, problem, seconds=5.0)]) for solver in ONCE]
        for budget in budgets:
            found = {s: [run(s, build_problem(job(), setting(name)), seed=k, **budget) for k in range(seeds)] for s in TIMED}  # type: ignore[arg-type]
            words = f"{budget['seconds']:g} s" if "seconds" in budget else f"{budget['evaluations']:,} evaluations"
            ratio = mean(found["auto"]) / mean(found["sha-ea"])
            rows.append(f"| {name} | {words} | {' | '.join(shown(found[s]) for s in TIMED)} | {' | '.join(once)} | {ratio:.2f} |")
            print(rows[-1], {s: [(o.evaluations, round(o.cpu_s, 1)) for o in found[s]] for s in TIMED}, flush=True)
            yield rows


def mean(outcomes: list[Outcome]) -> float:
    costs = [o.cost if o.cost is not None else float("inf") for o in outcomes]
    return sum(costs) / len(costs)


def shown(outcomes: list[Outcome]) -> str:
    value = mean(outcomes)
    return "none fits" if value == float("inf") else f"{value:.1f}"


def large(seconds: float) -> str:
    """The 1,024-GPU fleet: processor seconds to the first plan that fits, and this process's largest memory."""
    SOLVERS["auto"].ready(build_problem(job(), fleet(8)))
    problem = build_problem(job(), fleet(1024))
    evaluator = metered(problem, Budget(evaluations=EVERY, seconds=seconds))
    SOLVERS["auto"].search(evaluator, 0, ())
    first, last = evaluator.trajectory[0], evaluator.trajectory[-1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"1,024 GPUs of three types in eight regions: the first plan that fits after {first.seconds:.1f} s of a processor ({first.cost_s:.0f} s an iteration),"
        f" {last.cost_s:.0f} s an iteration after {seconds:g} s; {memory:.2f} GiB of memory."
    )


def page(rows: list[str], fleet_line: str, seeds: int) -> str:
    kept = PAGE.read_text().split("## Measured")[0] if PAGE.exists() else "# The search\n\n"
    command = " ".join(["python -m tests.benchmarks.search_quality", *sys.argv[1:]])
    said = f"Seconds of an iteration of the best plan, mean of {seeds} seed{'s' if seeds > 1 else ''}; `auto : sha-ea` below 1 is better."
    head = [
        "## Measured",
        "",
        f"Made by `{command}`. {said}",
        "Seconds of a budget are processor time of all threads. verl and streamrl end by themselves, or after 5 s.",
        "",
    ]
    return kept + "\n".join([*head, *rows, "", fleet_line, ""])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, nargs="*", default=[1.0, 10.0])
    options.add_argument("--evaluations", type=int, nargs="*", default=[4000, 20_000])
    options.add_argument("--settings", nargs="*", default=list(SCENARIOS))
    options.add_argument("--seeds", type=int, default=1)
    given = options.parse_args()
    budgets = [*({"seconds": s} for s in given.seconds), *({"evaluations": n} for n in given.evaluations)]
    line = large(4.0)
    print(line, flush=True)
    for rows in table(budgets, given.settings, given.seeds):
        PAGE.write_text(page(rows, line, given.seeds))


if __name__ == "__main__":
    main()
