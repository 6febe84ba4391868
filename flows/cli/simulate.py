"""``hetrl simulate``: the simulator alone, on files."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.table import Table

from artifacts.errors import InputError
from artifacts.job import load_job
from artifacts.plan import Plan
from artifacts.topology import Topology
from artifacts.units import show_seconds
from artifacts.views.text import task_title
from flows.alone import Alone, run_alone
from flows.cli.progress import StageProgress
from flows.cli.stages import JOB, JSON, PLAN, RUNNER, SET, TOPOLOGY, console
from flows.launch import make_runner

TRACE = "trace.json"
"""The train stage's file with the timeline."""


def simulate(topology: Path = TOPOLOGY, job: Path = JOB, plan: Path = PLAN,
             trace: Path = typer.Option(None, "--trace", help="File for the timeline: open it in ui.perfetto.dev or chrome://tracing."),
             iterations: int = typer.Option(4, "--iterations", min=1, max=10_000, help="Iterations to play."),
             overrides: list[str] = SET, runner: str = RUNNER, as_json: bool = JSON) -> None:
    """Play a plan event by event on a topology, described or measured: what would an iteration take. Nothing is deployed or trained.

    Example: hetrl simulate --topology out/topology.json --job infra/jobs/qwen3-8b-ppo.yaml --plan out/plan.json --trace trace.json
    """
    short = load_job(str(job), [*overrides, f"iterations={iterations}"])
    inputs = {"job": short, "topology": Topology.read(topology), "plan": Plan.read(plan)}
    with StageProgress("train", console) as progress, run_alone(
        "train", inputs, {"simulate_only": True}, runner=make_runner(runner), on_event=lambda event: progress.on_event("train", event)
    ) as made:
        if trace:
            _write_trace(made, trace)
    figures = {name: made.summary[name] for name in ("iteration_time_s", "throughput_samples_per_s", "by_task", "iterations")}
    table = Table("task", "simulated", title=f"{show_seconds(figures['iteration_time_s'])} an iteration, "
                  f"{figures['throughput_samples_per_s']:,.3g} samples/s", title_justify="left")
    for task, seconds in figures["by_task"].items():
        table.add_row(task_title(task), show_seconds(seconds))
    console.print(table)
    if trace:
        console.print(f"  {trace}", markup=False)
    if as_json:
        typer.echo(json.dumps(figures | ({"trace": str(trace)} if trace else {})))


def _write_trace(made: Alone, trace: Path) -> None:
    try:
        trace.parent.mkdir(parents=True, exist_ok=True)
        made.store.read_file(made.ref, TRACE, trace)
    except OSError as error:
        raise InputError(f"cannot write to {trace}: {error.strerror}", fix="choose a file you may write") from None
