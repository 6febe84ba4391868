"""The simulator against the cost model, both uncalibrated, on random plans that fit in the four published network settings.

    python -m tests.benchmarks.simulator_agreement

plays 200 plans (some minutes), keeps them in ``simulator_agreement.csv`` and writes the tables of ``infra/docs/simulator.md``; with
``--tables`` it only writes the tables again, from the figures kept.
"""

from __future__ import annotations

import csv
import io
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from statistics import mean, median, quantiles

from artifacts.job import Job, load_job
from artifacts.plan import Plan
from artifacts.topology import Topology
from stages.profile.scenarios import SCENARIOS
from stages.schedule.documents import prediction_document, price_plan
from stages.schedule.problem import Problem
from stages.train.engines.simulator.iteration import build
from stages.train.engines.simulator.log import lines
from stages.train.engines.simulator.rollout import check_cache
from stages.train.engines.simulator.setting import setting_of
from tests.benchmarks.random_plans import random_plans, scenario_topology

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".csv")
PAGE = ROOT / "infra/docs/simulator.md"
BEGIN, END = "<!-- agreement: begin -->", "<!-- agreement: end -->"
BATCH = ("batch.prompts=96", "batch.mini_batch_prompts=48")
JOBS: dict[str, tuple[str, ...]] = {
    "8B PPO": ("qwen3-8b-ppo",),
    "4B GRPO": ("qwen3-4b-grpo",),
    "8B GRPO, lengths vary": ("qwen3-8b-grpo", "response_tokens.mean=500", "prompt_tokens.mean=600"),
    "8B GRPO, async": ("qwen3-8b-grpo", "mode=async"),
    "4B PPO, async, lengths vary": ("qwen3-4b-ppo", "mode=async", "response_tokens.mean=500", "prompt_tokens.mean=600"),
}
ITERATIONS = 4
"""Played where lengths vary or batches overlap; asynchronous, the first fills the pipeline and is not counted."""


@dataclass(frozen=True)
class Row:
    """One plan: seconds of an iteration, and of each task (``task → seconds``), as predicted and as simulated."""

    setting: str
    job: str
    number: int
    predicted_s: float
    simulated_s: float
    predicted: dict[str, float]
    simulated: dict[str, float]

    @property
    def difference(self) -> float:
        """(predicted − simulated) / simulated."""
        return self.predicted_s / self.simulated_s - 1.0


def benchmark_job(name: str) -> Job:
    file, *overrides = JOBS[name]
    return load_job(str(ROOT / f"infra/jobs/{file}.yaml"), [*BATCH, *overrides])


def compare(setting: str, job_name: str, plans: int, *, topology: Topology | None = None) -> Iterator[Row]:
    """Price and play the first ``plans`` random plans of a job in a setting."""
    job, fleet = benchmark_job(job_name), topology or scenario_topology(setting)
    for number, (problem, plan) in enumerate(islice(random_plans(job, fleet, seed=7), plans)):
        yield _row(setting, job_name, number, problem, plan)


def _row(setting: str, job_name: str, number: int, problem: Problem, plan: Plan) -> Row:
    price = price_plan(problem, plan)
    assert price is not None
    prediction = prediction_document(problem, plan, price)
    played_in = setting_of(problem.job, problem.topology, plan)
    check_cache(played_in)
    made = build(played_in, first=0, count=1 if problem.job.mode == "sync" and "vary" not in job_name else ITERATIONS)
    found = lines(played_in, made, made.graph.play())
    counted = found[1:] if problem.job.mode == "async" else found
    tasks = list(found[0].by_task_s)
    return Row(
        setting=setting,
        job=job_name,
        number=number,
        predicted_s=prediction.iteration_time_s,
        simulated_s=mean(i.time_s for i in counted),
        predicted={**{name: t.time_s for name, t in prediction.tasks.items()}, **prediction.other_s},
        simulated={t: mean(i.by_task_s[t] for i in counted) for t in tasks},
    )


def kendall(rows: Iterable[Row]) -> float:
    """τ over pairs of plans of the same job in the same setting: (pairs ranked alike − ranked otherwise) / pairs."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.setting, row.job].append(row)
    signs = [
        1 if (a.predicted_s - b.predicted_s) * (a.simulated_s - b.simulated_s) > 0 else -1
        for group in groups.values() for a, b in combinations(group, 2)
    ]
    return mean(signs)


def median_difference(rows: Sequence[Row]) -> float:
    return median(abs(r.difference) for r in rows)


def tables(rows: Sequence[Row]) -> str:
    """Markdown: by setting, by job, by task, without the largest effect, and the plans that differ most."""
    return "\n\n".join([_by(rows, "setting"), _by(rows, "job"), _by_task(rows), _without_weight_update(rows), _worst(rows)]) + "\n"


def _by(rows: Sequence[Row], what: str) -> str:
    out = [f"| {what} | plans | median difference | nine of ten within | signed median | τ |", "|---|--:|--:|--:|--:|--:|"]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[getattr(row, what)].append(row)
    for name, group in [*groups.items(), ("**all**", list(rows))]:
        within = quantiles([abs(r.difference) for r in group], n=10)[-1]
        out.append(f"| {name} | {len(group)} | {median_difference(group):.1%} | {within:.1%} | {median(r.difference for r in group):+.1%} "
                   f"| {kendall(group):.3f} |")
    return "\n".join(out)


def _by_task(rows: Sequence[Row]) -> str:
    """Each task's own difference, and its part of all seconds by which tasks differ (each plan counts alike: relative to its iteration)."""
    parts: dict[str, list[float]] = defaultdict(list)
    own: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for task, seconds in row.simulated.items():
            parts[task].append(abs(row.predicted[task] - seconds) / row.simulated_s)
            if seconds > 0:
                own[task].append(row.predicted[task] / seconds - 1.0)
    total = sum(sum(p) for p in parts.values())
    out = ["| task | median difference of the task | signed median | part of all differences |", "|---|--:|--:|--:|"]
    for task in sorted(parts, key=lambda t: -sum(parts[t])):
        out.append(f"| {task.replace('_', ' ')} | {median(map(abs, own[task])):.1%} | {median(own[task]):+.1%} | {sum(parts[task]) / total:.0%} |")
    return "\n".join(out)


def with_simulated_update(rows: Sequence[Row]) -> list[Row]:
    """The weight update is added to everything else in both modes, so that its effect can be taken out."""
    return [replace(r, predicted_s=r.predicted_s - r.predicted["weight_update"] + r.simulated["weight_update"]) for r in rows]


def _without_weight_update(rows: Sequence[Row]) -> str:
    alike = with_simulated_update(rows)
    return (f"With the weight update's time taken from the simulator in both: median difference {median_difference(alike):.1%}, "
            f"τ {kendall(alike):.3f}.")


def _worst(rows: Sequence[Row], *, count: int = 8) -> str:
    out = ["| plans that differ most | predicted, s | simulated, s | difference | of which, s |", "|---|--:|--:|--:|---|"]
    for row in sorted(rows, key=lambda r: -abs(r.difference))[:count]:
        apart = sorted(((row.predicted[t] - s, t) for t, s in row.simulated.items()), key=lambda x: -abs(x[0]))[:3]
        words = ", ".join(f"{task.replace('_', ' ')} {seconds:+,.0f}" for seconds, task in apart)
        out.append(f"| {row.setting}, {row.job}, no. {row.number} | {row.predicted_s:,.0f} | {row.simulated_s:,.0f} | {row.difference:+.0%} "
                   f"| {words} |")
    return "\n".join(out)


def to_csv(rows: Sequence[Row]) -> str:
    """A line a plan and task; the iteration is a task of its own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["setting", "job", "plan", "task", "predicted_s", "simulated_s"])
    for r in rows:
        lines_ = [("iteration", r.predicted_s, r.simulated_s), *((t, r.predicted[t], s) for t, s in r.simulated.items())]
        writer.writerows([r.setting, r.job, r.number, task, f"{p:.6g}", f"{s:.6g}"] for task, p, s in lines_)
    return out.getvalue()


def from_csv(text: str) -> list[Row]:
    found: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = defaultdict(dict)
    for line in csv.DictReader(io.StringIO(text)):
        found[line["setting"], line["job"], int(line["plan"])][line["task"]] = (float(line["predicted_s"]), float(line["simulated_s"]))
    rows = []
    for (setting, job, number), tasks in found.items():
        whole = tasks.pop("iteration")
        rows.append(Row(setting, job, number, *whole, {t: p for t, (p, _) in tasks.items()}, {t: s for t, (_, s) in tasks.items()}))
    return rows


def page_with(text: str, made: str) -> str:
    """The page with new tables between the marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{made}{END}{after}"


def play_all(plans: int) -> list[Row]:
    rows: list[Row] = []
    for setting in SCENARIOS:
        topology = scenario_topology(setting)
        for job in JOBS:
            rows += compare(setting, job, plans, topology=topology)
            print(f"{setting}, {job}: median {median_difference(rows[-plans:]):.1%}, τ {kendall(rows[-plans:]):.2f}", file=sys.stderr)
    return rows


def main(arguments: Sequence[str]) -> None:
    if "--tables" not in arguments:
        TABLE.write_text(to_csv(play_all(10)), encoding="utf-8")
    made = tables(from_csv(TABLE.read_text(encoding="utf-8")))
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main(sys.argv[1:])
