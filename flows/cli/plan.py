"""Planning by itself, on files: the best plan for a job on a topology, and what a given plan would do. No store, no cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from artifacts.calibration import Calibration
from artifacts.errors import InputError
from artifacts.job import Job, load_job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.topology import Topology
from artifacts.views import terminal_summary
from flows.budget import schedule_parameters
from flows.cli.stages import JSON, PLAN, RUNNER, SET, TOPOLOGY, console, run_stage

JOB_FILE = typer.Argument(None, metavar="JOB", help="Job file (YAML, or the JSON of a job artifact).")
JOB_OPTION = typer.Option(None, "--job", help="The job file, as an option.")
CALIBRATION = typer.Option(None, "--calibration", help="calibration.json")
ENOUGH = "enough"
"""The file in the stage's work folder that ends the search."""


def schedule(job_file: Path = JOB_FILE, topology: Path = TOPOLOGY, job: Path = JOB_OPTION,
             out: Path = typer.Option(Path(".hetrl/plan"), "--out", help="Folder for plan, prediction, search and report."),
             calibration: Path = CALIBRATION,
             solver: str = typer.Option("auto", "--solver", help="auto, sha-ea, exact (ilp: the integer programme alone), or a baseline: "
                                        "sha-ea-published, verl, streamrl, deap, random."),
             budget: str = typer.Option("", "--budget", help="Seconds (10s, 2m) or plan evaluations (5000)."),
             seconds: float = typer.Option(None, "--seconds", help="Budget in seconds."),
             evaluations: int = typer.Option(None, "--evaluations", help="Budget in plan evaluations: the same plan on every machine."),
             seed: int = typer.Option(0, "--seed", help="Seed of the search."),
             without: list[str] = typer.Option([], "--without", help="Switch a part of the search off, to see what it is worth: halving, "
                                               "local-search, balancing or seeds. Repeatable."), overrides: list[str] = SET,
             explain: bool = typer.Option(False, "--explain", help="Show how large the search space is, level by level."),
             warm: Path = typer.Option(None, "--warm", metavar="PLAN", help="The plan in force: where the search starts; it says "
                                       "what moves."),
             prefer_stable: bool = typer.Option(False, "--prefer-stable", help="With --warm: moving is in the objective."),
             horizon: int = typer.Option(None, "--horizon", help="With --prefer-stable: iterations a move is spread over (100)."),
             workers: str = typer.Option("local", "--workers", help="local: this machine's cores. ray: a search on every CPU of the Ray "
                                         "cluster at RAY_ADDRESS, or of the one here."),
             ray_workers: int = typer.Option(None, "--ray-workers", help="Searches on the Ray cluster. Default: one for each of its CPUs."),
             runner: str = RUNNER, as_json: bool = JSON) -> None:
    """Find the best plan for a job on a topology: plan, prediction, search, report. Ctrl-C ends the search with the best plan so far.

    Example: hetrl schedule infra/jobs/tiny-grpo.yaml --topology out/topology.json --seconds 10 --out out/
    """
    given = [name for name, value in (("--budget", budget), ("--seconds", seconds), ("--evaluations", evaluations)) if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} each set the search's budget", fix="give one of them")
    parameters = schedule_parameters(solver=solver, budget=budget, seed=seed) | {"stop_file": ENOUGH}
    named = (("seconds", seconds), ("evaluations", evaluations), ("explain", explain), ("without", without),
             ("prefer_stable", prefer_stable), ("horizon_iterations", horizon), ("ray_workers", ray_workers))
    parameters |= {name: value for name, value in named if value} | _workers(workers, ray_workers)
    _check_stable(warm, prefer_stable, horizon)
    inputs = _inputs(_one_job(job_file, job, overrides), topology, calibration)
    earlier = {"plan": Plan.read(warm)} if warm else {}
    made = run_stage("schedule", inputs, parameters, out, runner, as_json, while_running=_best_so_far, context=earlier)
    if not as_json:
        _print_space(made.get("space", []))
        if "moves" in made:
            console.print(Plan.read(made["plan"]).reasons[-1], markup=False)
        console.print(terminal_summary(inputs["topology"], Plan.read(made["plan"]), Prediction.read(made["prediction"]),
                                       look={"report": made.get("report.html", made["plan"])}))


def predict(job_file: Path = JOB_FILE, topology: Path = TOPOLOGY, plan: Path = PLAN, job: Path = JOB_OPTION,
            fidelity: str = typer.Option("calibrated", "--fidelity", help="calibrated, or paper: the published formulas."),
            out: Path = typer.Option(Path(".hetrl/plan"), "--out", help="Folder for the prediction."), calibration: Path = CALIBRATION,
            overrides: list[str] = SET, runner: str = RUNNER, as_json: bool = JSON) -> None:
    """Price a given plan as it stands: what would an iteration take, and does it fit.

    Example: hetrl predict infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --plan out/plan.json --set response_tokens.mean=512
    """
    inputs = _inputs(_one_job(job_file, job, overrides), topology, calibration) | {"plan": Plan.read(plan)}
    made = run_stage("schedule", inputs, {"price_only": True, "fidelity": fidelity}, out, runner, as_json)
    if not as_json:
        console.print(terminal_summary(inputs["topology"], inputs["plan"], Prediction.read(made["prediction"]), look={}))


def _check_stable(warm: Path | None, prefer_stable: bool, horizon: int | None) -> None:
    if prefer_stable and warm is None:
        raise InputError("--prefer-stable needs the plan to stay near", fix="name it: --warm out/plan.json")
    if horizon is not None and not prefer_stable:
        raise InputError("--horizon says over how many iterations --prefer-stable spreads moving", fix="add --prefer-stable")


def _workers(workers: str, ray_workers: int | None) -> dict[str, Any]:
    """Where the search runs. The address goes into the request, because a container does not see this environment."""
    if workers not in ("local", "ray"):
        raise InputError(f"there are no workers {workers[:40]!r}", fix="choose local or ray")
    if workers == "local" and ray_workers is not None:
        raise InputError("--ray-workers says how many searches run on a Ray cluster", fix="add --workers ray")
    return {"workers": "ray", "ray_address": os.environ.get("RAY_ADDRESS", "")} if workers == "ray" else {}


def _one_job(argument: Path | None, option: Path | None, overrides: list[str]) -> Job:
    if (argument is None) == (option is None):
        raise InputError("name one job file", fix="for example hetrl schedule infra/jobs/tiny-grpo.yaml --topology out/topology.json")
    return load_job(str(argument or option), overrides)


def _inputs(job: Job, topology: Path, calibration: Path | None) -> dict[str, Any]:
    inputs: dict[str, Any] = {"job": job, "topology": Topology.read(topology)}
    if calibration:
        inputs["calibration"] = Calibration.read(calibration)
    return inputs


@contextmanager
def _best_so_far(workdir: Path) -> Iterator[None]:
    """The first Ctrl-C asks the search for its best plan, the second ends it without one."""
    before = signal.getsignal(signal.SIGINT)

    def ask(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        (workdir / ENOUGH).touch()
        console.print("stopping: the best plan so far is the result (Ctrl-C again: none)", markup=False)

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_space(space: list[dict[str, Any]]) -> None:
    for level in space:
        about = "" if level["exact"] else "about "
        digits = level["count"]
        shown = f"{int(digits):,}" if digits and len(digits) <= 15 else f"{about}10^{level['log10']:.1f}"
        console.print(f"  {level['name']:52} {shown:>24}", markup=False)
