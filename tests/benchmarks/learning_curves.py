"""Does the example job learn: ``python -m tests.benchmarks.learning_curves`` prints a table of mean rewards, placements side by side.

The shipped job (``infra/jobs/tiny-grpo.yaml``) on one device, and on two machines of this host in pipeline stages of 3 and 1 layers. Every run
is the stage as it is launched: real Ray, verl and Megatron-Core.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import mean

from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from tests.stages.train.launch import trained
from tests.stages.train.requests import write_request
from tests.stages.train.support import grpo_plan, job, topology

WINDOW = 5
"""Iterations averaged in the summary line."""


def placements(tiny: Job) -> dict[str, tuple[Topology, Plan]]:
    one, two = topology(1), topology(1, 1)
    return {"one device": (one, grpo_plan(tiny, one, ["m0-d0"])),
            "3 layers on m1, 1 on m0": (two, grpo_plan(tiny, two, ["m1-d0", "m0-d0"], pp=2, layers=[3, 1], micro=16))}


def main() -> None:
    parser = argparse.ArgumentParser(description="Mean reward of the example job over its iterations, by placement and seed.")
    parser.add_argument("--iterations", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    curves: dict[str, list[float]] = {}
    for seed in range(arguments.seeds):
        tiny = job("tiny-grpo", f"iterations={arguments.iterations}", f"seed={seed}", "checkpoint_every=0")
        for name, (fleet, plan) in placements(tiny).items():
            with tempfile.TemporaryDirectory() as folder:
                log = trained(write_request(Path(folder), tiny, fleet, plan), timeout_s=3600)
            curves[f"{name}, seed {seed}"] = [line.reward_mean or 0.0 for line in log.iterations]
            print(f"{name}, seed {seed}: " + " ".join(f"{reward:.3f}" for reward in curves[f"{name}, seed {seed}"]), flush=True)
    print(f"\n| placement | first {WINDOW} | last {WINDOW} |\n|---|---|---|")
    for name, rewards in curves.items():
        print(f"| {name} | {mean(rewards[:WINDOW]):.3f} | {mean(rewards[-WINDOW:]):.3f} |")


if __name__ == "__main__":
    main()
