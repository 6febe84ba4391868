"""How far off are predictions of real runs: ``python -m tests.benchmarks.prediction_study`` trains different plans on this machine.

Random plans of the small jobs (GRPO and PPO, any grouping, degrees, cut and micro-batch) are deployed and trained for real. The first half
calibrates, one run after the other, each predicted with what the earlier ones taught; then nothing more is learned, and the other half is
predicted before it runs. Every plan's figures are kept in ``prediction_study.jsonl``, so that a study that was stopped goes on; the table
goes to infra/docs/real-runs.md. A plan takes about a minute on a quiet machine. ``--page`` only writes the table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from artifacts.plan import Plan

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_suffix(".jsonl")
PAGE = ROOT / "infra/docs/real-runs.md"
WORK = Path(".hetrl/prediction-study")
JOBS = ("tiny-grpo", "tiny-ppo")
BEGIN, END = "<!-- real runs: begin -->", "<!-- real runs: end -->"

Line = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Predictions against real runs of different plans on this machine.")
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--iterations", type=int, default=6, help="of each plan; the first is not counted")
    parser.add_argument("--page", action="store_true", help="only write the table from the lines there are")
    arguments = parser.parse_args()
    lines = _lines()
    if not arguments.page:
        WORK.mkdir(parents=True, exist_ok=True)
        if not (WORK / "topology.json").exists():
            _hetrl("profile", "--cluster", "local", "--out", str(WORK))
        for number, (job, seed) in enumerate(_chosen(arguments.plans)):
            if number >= len(lines):
                lines.append(_run(number, job, seed, learns=number < arguments.plans // 2, iterations=arguments.iterations))
                with RESULTS.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(lines[-1]) + "\n")
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{after}", encoding="utf-8")


def _lines() -> list[Line]:
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def _chosen(count: int) -> list[tuple[str, int]]:
    """(job, seed) of plans no two of which are laid out alike, the jobs in turn."""
    found: list[tuple[str, int]] = []
    seen: set[str] = set()
    for seed in range(200):
        for job in JOBS:
            if sum(j == job for j, _ in found) * len(JOBS) < count and (shape := _shape(_schedule(job, seed, WORK / "tried"))) not in seen:
                seen.add(shape)
                found.append((job, seed))
        if len(found) >= count:
            break
    return sorted(found, key=lambda one: (found.index(one) // len(JOBS), one[0]))[:count]


def _schedule(job: str, seed: int, out: Path, *options: str) -> Plan:
    _hetrl("schedule", f"infra/jobs/{job}.yaml", "--topology", str(WORK / "topology.json"), "--solver", "random", "--evaluations", "1",
           "--seed", str(seed), "--out", str(out), *options)
    return Plan.read(out / "plan.json")


def _shape(plan: Plan) -> str:
    """Devices of one kind are the same: what is left is who shares devices, and the layouts."""
    groups = sorted(f"{'+'.join(g.tasks)} on {len(g.devices)}" for g in plan.groups)
    layouts = [f"{t} {s.dp}x{s.pp}x{s.tp} {s.layers} micro {s.micro_batch_sequences}" for t, s in sorted(plan.tasks.items())]
    return "; ".join([*groups, *layouts])


def _run(number: int, job: str, seed: int, *, learns: bool, iterations: int) -> Line:
    out = WORK / f"plan-{number}"
    shutil.rmtree(out, ignore_errors=True)
    known = WORK / "calibration.json"
    calibrated = ["--calibration", str(known)] if known.exists() else []
    length = ["--set", f"iterations={iterations}"]
    bare = _hetrl("schedule", f"infra/jobs/{job}.yaml", "--topology", str(WORK / "topology.json"), "--solver", "random", "--evaluations", "1",
                  "--seed", str(seed), "--out", str(out / "bare"), *length)
    plan = _schedule(job, seed, out, *length)
    files = ["--topology", str(WORK / "topology.json"), "--job", f"infra/jobs/{job}.yaml", *length]
    _hetrl("predict", *files, "--plan", str(out / "plan.json"), "--out", str(out), *calibrated)
    shutil.copy(WORK / "topology.json", out)
    _hetrl("deploy", *files, "--plan", str(out / "plan.json"), "--out", str(out))
    _hetrl("train", *files, "--plan", str(out / "plan.json"), "--deployment", str(out / "deployment.json"), "--out", str(out))
    _hetrl("validate", "--from", str(out), "--job", f"infra/jobs/{job}.yaml", *length, "--out", str(out), *calibrated)
    if learns:
        shutil.copy(out / "calibration.json", known)
    found = json.loads((out / "validation.json").read_text(encoding="utf-8"))
    return {"plan": number, "job": job, "shape": _shape(plan), "learns": learns, "bare_s": bare["iteration_time_s"],
            "iteration": _figures(found["iteration"]), "tasks": {row["task"]: _figures(row) for row in found["rows"]}}


def _figures(row: Line) -> Line:
    return {"predicted_s": row["predicted_s"], "measured_s": row["measured_s"], "spread": row["measured_spread"], "error": row["error"]}


def _hetrl(*arguments: str) -> Line:
    done = subprocess.run([sys.executable, "-m", "flows.cli.main", *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


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
