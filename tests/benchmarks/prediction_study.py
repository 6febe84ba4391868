"""How far off are predictions of real runs: ``python -m tests.benchmarks.prediction_study`` trains different plans on this machine.

Random plans of the small jobs (GRPO and PPO, any grouping, degrees, cut and micro-batch) are deployed and trained for real. The first half
calibrates, one run after the other, each predicted with what the earlier ones taught; then nothing more is learned, and the other half is
predicted before it runs. Every plan's figures are kept in ``prediction_study.jsonl``, so that a study that was stopped goes on; the table
goes to infra/docs/real-runs.md. A plan takes about a minute on a quiet machine. ``--page`` only writes the table. With ``--lab`` the same
(GRPO alone) on the lab that is up, ``infra/lab/two-regions.yaml``, three minutes a plan.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from artifacts.plan import Plan
from artifacts.topology import Topology
from tests.benchmarks import on_the_lab

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_suffix(".jsonl")
PAGE = ROOT / "infra/docs/real-runs.md"
BEGIN, END = "<!-- {} runs: begin -->", "<!-- {} runs: end -->"

Line = dict[str, Any]


def _here(*words: str) -> Line:
    done = subprocess.run([sys.executable, "-m", "flows.cli.main", *words, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@dataclass(frozen=True)
class Study:
    """Where plans are trained, of which jobs, and where what was found is kept."""

    cluster: str
    jobs: tuple[str, ...]
    results: Path
    hetrl: Callable[..., Line]

    @property
    def work(self) -> Path:
        return Path(f".hetrl/prediction-study-{self.cluster}")

    @property
    def topology(self) -> Path:
        return self.work / "topology.json"


LOCAL = Study("local", ("tiny-grpo", "tiny-ppo"), Path(__file__).with_suffix(".jsonl"), _here)
LAB = Study("lab", ("tiny-grpo",), Path(__file__).with_name("prediction_study_lab.jsonl"), on_the_lab.hetrl)


def main() -> None:
    parser = argparse.ArgumentParser(description="Predictions against real runs of different plans on this machine.")
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--iterations", type=int, default=6, help="of each plan; the first is not counted")
    parser.add_argument("--lab", action="store_true", help="on the lab that is up")
    parser.add_argument("--page", action="store_true", help="only write the table from the lines there are")
    parser.add_argument("--again", action="store_true", help="train nothing: predict the runs there are anew, with the model as it is now")
    arguments = parser.parse_args()
    study = LAB if arguments.lab else LOCAL
    lines = _lines(study)
    if arguments.again:
        lines = _again(study, lines, arguments.plans // 2, arguments.iterations)
        _keep(study, lines)
    elif not arguments.page:
        study.work.mkdir(parents=True, exist_ok=True)
        if not study.topology.exists():
            study.hetrl("profile", "--cluster", study.cluster, "--out", str(study.work))
        for number, (job, seed) in enumerate(_chosen(study, arguments.plans)):
            if number >= len(lines):
                learns = number < arguments.plans // 2
                lines.append(_run(study, number, job, seed, learns=learns, iterations=arguments.iterations))
                _keep(study, lines)
    page = PAGE.read_text(encoding="utf-8")
    begin, end = (mark.format(study.cluster) for mark in (BEGIN, END))
    before, after = page.split(begin)[0], page.split(end)[1]
    PAGE.write_text(f"{before}{begin}\n{table(lines)}\n{end}{after}", encoding="utf-8")


def _lines(study: Study) -> list[Line]:
    return [json.loads(line) for line in study.results.read_text(encoding="utf-8").splitlines()] if study.results.exists() else []


def _keep(study: Study, lines: list[Line]) -> None:
    study.results.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _again(study: Study, lines: list[Line], learned: int, iterations: int) -> list[Line]:
    """The runs there are, predicted with the model as it is now, which learns from the same ones in the same order."""
    (study.work / "calibration.json").unlink(missing_ok=True)
    return [_run(study, n, line["job"], 0, learns=n < learned, iterations=iterations, again=True) for n, line in enumerate(lines)]


def _chosen(study: Study, count: int) -> list[tuple[str, int]]:
    """(job, seed) of plans no two of which are laid out alike, the jobs in turn."""
    found: list[tuple[str, int]] = []
    seen: set[str] = set()
    for seed in range(200):
        for job in study.jobs:
            if sum(j == job for j, _ in found) * len(study.jobs) < count:
                shape = _shape(study, _schedule(study, job, seed, study.work / "tried"))
                if shape not in seen:
                    seen.add(shape)
                    found.append((job, seed))
        if len(found) >= count:
            break
    return sorted(found, key=lambda one: (found.index(one) // len(study.jobs), one[0]))[:count]


def _schedule(study: Study, job: str, seed: int, out: Path, *options: str) -> Plan:
    _here("schedule", f"infra/jobs/{job}.yaml", "--topology", str(study.topology), "--solver", "random", "--evaluations", "1",
          "--seed", str(seed), "--out", str(out), *options)
    return Plan.read(out / "plan.json")


def _shape(study: Study, plan: Plan) -> str:
    """Devices of one kind are the same: what is left is who shares devices, and the layouts. Where there are several kinds, machines by name."""
    topology = Topology.read(study.topology)
    machine = {d.id: d.machine for d in topology.devices}
    many = len(topology.machines) > 1
    groups = sorted(f"{'+'.join(g.tasks)} on {', '.join(sorted(machine[d] for d in g.devices)) if many else len(g.devices)}" for g in plan.groups)
    layouts = [f"{t} {s.dp}x{s.pp}x{s.tp} {s.layers} micro {s.micro_batch_sequences}" for t, s in sorted(plan.tasks.items())]
    return "; ".join([*groups, *layouts])


def _run(study: Study, number: int, job: str, seed: int, *, learns: bool, iterations: int, again: bool = False) -> Line:
    out = study.work / f"plan-{number}"
    known = study.work / "calibration.json"
    calibrated = ["--calibration", str(known)] if known.exists() else []
    length = ["--set", f"iterations={iterations}"]
    files = ["--topology", str(study.topology), "--job", f"infra/jobs/{job}.yaml", *length]
    if again:
        plan = Plan.read(out / "plan.json")
    else:
        shutil.rmtree(out, ignore_errors=True)
        plan = _schedule(study, job, seed, out, *length)
    bare = _here("predict", *files, "--plan", str(out / "plan.json"), "--out", str(out / "bare"))
    _here("predict", *files, "--plan", str(out / "plan.json"), "--out", str(out), *calibrated)
    if not again:
        shutil.copy(study.topology, out)
        study.hetrl("deploy", *files, "--plan", str(out / "plan.json"), "--out", str(out))
        study.hetrl("train", *files, "--plan", str(out / "plan.json"), "--deployment", str(out / "deployment.json"), "--out", str(out))
    _here("validate", "--from", str(out), "--job", f"infra/jobs/{job}.yaml", *length, "--out", str(out), *calibrated)
    if learns:
        shutil.copy(out / "calibration.json", known)
    found = json.loads((out / "validation.json").read_text(encoding="utf-8"))
    return {"plan": number, "job": job, "shape": _shape(study, plan), "learns": learns, "bare_s": bare["iteration_time_s"],
            "iteration": _figures(found["iteration"]), "tasks": {row["task"]: _figures(row) for row in found["rows"]}}


def _figures(row: Line) -> Line:
    return {"predicted_s": row["predicted_s"], "measured_s": row["measured_s"], "spread": row["measured_spread"], "error": row["error"]}


def table(lines: list[Line]) -> str:
    """Markdown: a row a plan, and the medians of the half that was not learned from."""
    rows = ["| plan | learned from | without calibration, s | predicted, s | measured, s | spread | error | worst task |",
            "|---|---|--:|--:|--:|--:|--:|---|"]
    for line in lines:
        whole = line["iteration"]
        worst = max(line["tasks"], key=lambda task: abs(line["tasks"][task]["error"]))
        rows.append(f"| {line['job']}: {line['shape']} | {'yes' if line['learns'] else 'no'} | {line['bare_s']:.2f} | {whole['predicted_s']:.2f} | "
                    f"{whole['measured_s']:.2f} | {whole['spread']:.0%} | {whole['error']:+.0%} | {worst} {line['tasks'][worst]['error']:+.0%} |")
    unseen = [line for line in lines if not line["learns"]]
    if unseen:
        by_task: dict[str, list[float]] = {}
        for line in unseen:
            for task, row in line["tasks"].items():
                by_task.setdefault(task, []).append(abs(row["error"]))
        bare = median(abs(line["bare_s"] / line["iteration"]["measured_s"] - 1) for line in unseen)
        rows += ["", f"Plans not learned from ({len(unseen)}): median error of the iteration "
                     f"{median(abs(line['iteration']['error']) for line in unseen):.0%} ({bare:.0%} without calibration), of a task "
                     f"{median(e for errors in by_task.values() for e in errors):.0%} ("
                     + ", ".join(f"{task} {median(errors):.0%}" for task, errors in by_task.items()) + ")."]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
