"""Does the example job learn, and alike on one device and on several: ``python -m tests.benchmarks.learning_curves``.

The shipped job (``infra/jobs/tiny-grpo.yaml``) on one device, and on two machines of this host in pipeline stages of 3 and 1 layers. Every run
is the stage as it is launched: real Ray, verl and Megatron-Core. A curve that is in ``learning_curves.jsonl`` already is not run again, so the
script goes on where it stopped; ``--runs 1`` runs one that is missing. It ends with a table, a test of the difference, and the picture.

``--pretrained THROUGHPUT.jsonl`` adds the curve of a run of ``infra/jobs/smollm2-grpo.yaml`` instead, whose model takes an installation of its
own, and draws it.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from statistics import mean, variance
from typing import NamedTuple

from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from tests.stages.train.launch import trained
from tests.stages.train.requests import write_request
from tests.stages.train.support import grpo_plan, job, topology

WINDOW = 5
"""Iterations whose mean is compared: the last of a curve."""
ITERATIONS, SEEDS = 16, 3
CURVES = Path(__file__).with_suffix(".jsonl")
PICTURES = Path(__file__).parents[2] / "infra" / "pictures"
PICTURE, PRETRAINED_PICTURE = PICTURES / "learning-curves.svg", PICTURES / "smollm2-curve.svg"
ONE, TWO, PRETRAINED = "one device", "3 layers on m1, 1 on m0", "SmolLM2-135M"

Curves = dict[tuple[str, int], list[float]]


class Difference(NamedTuple):
    """Welch's comparison of two means: theirs (first minus second), its standard error, degrees of freedom, two-sided probability."""

    mean: float
    error: float
    freedom: float
    p: float


def placements(tiny: Job) -> dict[str, tuple[Topology, Plan]]:
    one, two = topology(1), topology(1, 1)
    return {ONE: (one, grpo_plan(tiny, one, ["m0-d0"])), TWO: (two, grpo_plan(tiny, two, ["m1-d0", "m0-d0"], pp=2, layers=[3, 1], micro=16))}


def read(path: Path = CURVES) -> Curves:
    """Mean reward of each iteration, by placement and seed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {(line["placement"], line["seed"]): line["reward"] for line in map(json.loads, lines)}


def run(placement: str, seed: int, iterations: int) -> Throughput:
    tiny = job("tiny-grpo", f"iterations={iterations}", f"seed={seed}", "checkpoint_every=0")
    fleet, plan = placements(tiny)[placement]
    with tempfile.TemporaryDirectory() as folder:
        return trained(write_request(Path(folder), tiny, fleet, plan), timeout_s=3600)


def difference(first: list[float], second: list[float]) -> Difference:
    """Welch's t-test. The tail of Student's distribution is summed numerically: no statistics package is among our dependencies."""
    parts = [variance(values) / len(values) for values in (first, second)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True))
    gap = mean(first) - mean(second)
    return Difference(gap, error, freedom, 2 * _tail(abs(gap) / error, freedom))


def _tail(t: float, freedom: float, steps: int = 20000) -> float:
    """P(T > t) for Student's t: ½ − ∫₀ᵗ of its density, by Simpson's rule in θ = arctan(x/√ν), where the density is cos^(ν−1) θ."""
    width = math.atan(t / math.sqrt(freedom)) / steps
    weights = [1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1)]
    area = sum(w * math.cos(i * width) ** (freedom - 1) for i, w in enumerate(weights)) * width / 3
    return 0.5 - area * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)


def ends(curves: Curves, placement: str) -> list[float]:
    """Mean of each seed's last iterations."""
    return [mean(rewards[-WINDOW:]) for (name, _), rewards in sorted(curves.items()) if name == placement]


def draw(curves: Curves, panels: tuple[str, ...], path: Path) -> None:
    """A panel for each placement: the curve of each seed, and their mean."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "learning curves"
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 3), sharey=True, layout="constrained", squeeze=False)
    axes = grid[0]
    for number, (axis, placement) in enumerate(zip(axes, panels, strict=True)):
        colour = f"C{number}"
        own = [rewards for (name, _), rewards in sorted(curves.items()) if name == placement]
        for rewards in own:
            axis.plot(range(1, len(rewards) + 1), rewards, color=colour, alpha=0.4, linewidth=1)
        means = [mean(at) for at in zip(*own, strict=True)]
        axis.plot(range(1, len(means) + 1), means, color=colour, linewidth=2)
        axis.set(title=placement, xlabel="iteration")
    axes[0].set_ylabel("mean reward")
    figure.savefig(path, metadata={"Date": None})


def add(curves: Curves, name: str, log: Throughput, file: Path) -> None:
    """Keep the curve of a run in ``file``, which has one a name and seed."""
    seed = log.header.seed
    if (name, seed) in curves:
        raise SystemExit(f"{file} has a curve of {name}, seed {seed}; take its line out to put another in its place")
    curves[name, seed] = [line.reward_mean or 0.0 for line in log.iterations]
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"placement": name, "seed": seed, "reward": [round(r, 4) for r in curves[name, seed]]}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Mean reward of the example job over its iterations, by placement and seed.")
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--runs", type=int, default=1000, help="how many of the missing curves are run now")
    parser.add_argument("--out", type=Path, default=CURVES, help="file with the curves there are; it is added to")
    parser.add_argument("--pretrained", type=Path, help="throughput.jsonl of a run of infra/jobs/smollm2-grpo.yaml, to add and draw")
    arguments = parser.parse_args()
    curves = read(arguments.out)
    if arguments.pretrained:
        log = Throughput.from_jsonl(arguments.pretrained.read_bytes(), where=str(arguments.pretrained))
        add(curves, PRETRAINED, log, arguments.out)
        draw(curves, (PRETRAINED,), PRETRAINED_PICTURE)
        return
    missing = [(name, seed) for seed in range(arguments.seeds) for name in (ONE, TWO) if (name, seed) not in curves]
    for name, seed in missing[: arguments.runs]:
        add(curves, name, run(name, seed, arguments.iterations), arguments.out)
        print(f"{name}, seed {seed}: " + " ".join(f"{reward:.3f}" for reward in curves[name, seed]), flush=True)
    print(f"\n| placement | seed | first {WINDOW} | last {WINDOW} |\n|---|---|---|---|")
    for (name, seed), rewards in sorted(curves.items()):
        print(f"| {name} | {seed} | {mean(rewards[:WINDOW]):.3f} | {mean(rewards[-WINDOW:]):.3f} |")
    if min(len(ends(curves, name)) for name in (ONE, TWO)) > 1:
        found = difference(ends(curves, ONE), ends(curves, TWO))
        print(f"\ndifference of the last {WINDOW}: {found.mean:+.3f} ± {found.error:.3f} (Welch, {found.freedom:.1f} degrees of freedom, "
              f"p = {found.p:.2f})")
        draw(curves, (ONE, TWO), PICTURE)


if __name__ == "__main__":
    main()
