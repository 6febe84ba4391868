"""Plans side by side on the lab that is up: ``sudo python -m tests.benchmarks.lab_race``; HetRL's, verl's and a random one.

First a few iterations of HetRL's plan calibrate the prediction; then each plan is deployed and trained for a warm-up and ``--repetitions``
measured iterations. Prints a table of what was predicted and measured, who was the fastest in each repetition, and whether the plans rank
as predicted. While an engine starts and in the warm-up the machines have no quotas: with them a start takes ten minutes. On
``two-regions.yaml`` it is a quarter of an hour in all. What drives the training runs beside the lab, so other programs must not keep this
machine busy.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from artifacts.manifest import VersionRef
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.store import open_store
from artifacts.throughput import Throughput
from tests.benchmarks.on_the_lab import hetrl

ROOT = Path(__file__).parents[2]
SOLVERS = {"auto": "HetRL's", "verl": "verl's", "random": "a random one"}
_STORE = Path(".hetrl/lab-race")


@dataclass(frozen=True)
class Run:
    """A plan on the lab. Seconds an iteration; the warm-up is not among ``measured_s``."""

    plan: str
    devices: int
    predicted_s: float
    measured_s: list[float]

    @property
    def median_s(self) -> float:
        return statistics.median(self.measured_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", default=str(ROOT / "infra/jobs/tiny-grpo.yaml"))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the random plan, and of the searches")
    parser.add_argument("--keep-profile", action="store_true", help="plan on the latest profile of this lab, and with what was learned on it")
    arguments = parser.parse_args()
    if not arguments.keep_profile:
        shutil.rmtree(_STORE, ignore_errors=True)  # what an earlier race learned, perhaps beside other programs, counts for nothing here
        _hetrl("--until", "profile", "--cluster", "lab", "--job", arguments.job)
        _hetrl("--from", "schedule", "--until", "validate", "--cluster", "lab", "--job", arguments.job, "--set", "iterations=4")
    print(table([race(solver, arguments) for solver in SOLVERS]))


def race(solver: str, arguments: argparse.Namespace) -> Run:
    # One evaluation: a random plan is the first that can be, not the best of many.
    made = _hetrl("--from", "schedule", "--until", "train", "--cluster", "lab", "--job", arguments.job, "--solver", solver,
                  "--seed", str(arguments.seed), *(["--budget", "1"] if solver == "random" else []),
                  "--set", f"iterations={arguments.repetitions + 1}")
    store = open_store(_STORE.absolute().as_uri(), pipeline="hetrl")
    ref = {stage: VersionRef(stage=stage, version=str(made[stage]["version"])) for stage in ("schedule", "train")}
    plan, prediction = store.read(ref["schedule"], Plan), store.read(ref["schedule"], Prediction)
    log = Throughput.from_jsonl(store.read_bytes(ref["train"], "throughput.jsonl"), where="throughput.jsonl")
    return Run(plan=SOLVERS[solver], devices=len({d for g in plan.groups for d in g.devices}), predicted_s=prediction.iteration_time_s,
               measured_s=[i.time_s for i in log.iterations[1:]])


def table(runs: list[Run]) -> str:
    """Markdown; the first of ``runs`` is ours."""
    lines = ["| plan | devices | predicted | measured, median | measured |", "|---|---|---|---|---|"]
    lines += [f"| {r.plan} | {r.devices} | {r.predicted_s:.2f} s | {r.median_s:.1f} s | {', '.join(f'{s:.1f}' for s in r.measured_s)} s |"
              for r in runs]
    rounds = list(zip(*(r.measured_s for r in runs), strict=True))
    won = sum(times[0] == min(times) for times in rounds)
    predicted, measured = (sorted(runs, key=key) for key in (lambda r: r.predicted_s, lambda r: r.median_s))
    lines += ["", f"{runs[0].plan} is the fastest in {won} of {len(rounds)} repetitions; "
                  + ("the ranking predicted is the ranking measured" if predicted == measured else
                     "measured, they rank otherwise than predicted: " + ", ".join(r.plan for r in measured))]
    return "\n".join(lines)


def _hetrl(*options: str) -> dict[str, dict[str, object]]:
    return hetrl("run", *options, "--store", _STORE.absolute().as_uri())


if __name__ == "__main__":
    main()
