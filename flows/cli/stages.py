"""One stage alone, on files: documents in, documents out, through the same request as everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from artifacts.calibration import Calibration
from artifacts.deployment import Deployment
from artifacts.errors import InfeasiblePlan, InputError
from artifacts.job import load_job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from flows.alone import run_alone
from flows.cli.progress import StageProgress
from flows.cluster import check_runner, profile_parameters
from flows.graph import FILE, StageName
from flows.lab.software import WORK
from flows.launch import make_runner
from flows.pipeline import StepResult

console = Console(stderr=True, soft_wrap=True, highlight=False)

OUT = typer.Option(..., "--out", help="Folder for what the stage makes.")
JOB = typer.Option(..., "--job", help="Job file (YAML, or the JSON of a job artifact).")
TOPOLOGY = typer.Option(..., "--topology", help="topology.json")
PLAN = typer.Option(..., "--plan", help="plan.json")
RUNNER = typer.Option("process", "--runner", help="process or docker.")
SET = typer.Option([], "--set", help="Change one field of the job: --set batch.prompts=16.")
JSON = typer.Option(False, "--json", help="The last line on standard output is one JSON object.")


def profile(cluster: str = typer.Option("local", "--cluster", help="local, lab, ray:auto, ray://host:port, or the path of an inventory."),
            out: Path = OUT, runner: str = RUNNER, as_json: bool = JSON) -> None:
    """Measure a cluster, or read an inventory, into a topology.

    Example: hetrl profile --cluster local --out out/
    """
    run_stage("profile", {}, profile_parameters(cluster), out, runner, as_json)


def deploy(topology: Path = TOPOLOGY, job: Path = JOB, plan: Path = PLAN, out: Path = OUT, overrides: list[str] = SET,
           runner: str = RUNNER, as_json: bool = JSON) -> None:
    """Place every rank of a plan on its device and prove it.

    Example: hetrl deploy --topology out/topology.json --job infra/jobs/tiny-grpo.yaml --plan out/plan.json --out out/
    """
    inputs = {"job": load_job(str(job), overrides), "topology": Topology.read(topology), "plan": Plan.read(plan)}
    run_stage("deploy", inputs, {}, out, runner, as_json)


def train(topology: Path = TOPOLOGY, job: Path = JOB, plan: Path = PLAN,
          deployment: Path = typer.Option(..., "--deployment", help="deployment.json"), out: Path = OUT, overrides: list[str] = SET,
          runner: str = RUNNER, as_json: bool = JSON) -> None:
    """Train under a deployment.

    Example: hetrl train --topology out/topology.json --job J.yaml --plan out/plan.json --deployment out/deployment.json --out out/
    """
    inputs = {"job": load_job(str(job), overrides), "topology": Topology.read(topology), "plan": Plan.read(plan),
              "deployment": Deployment.read(deployment)}
    run_stage("train", inputs, {}, out, runner, as_json)


def validate(folder: Path = typer.Option(..., "--from", help="Folder with the documents of the stages before, as --out made them."),
             job: Path = JOB, out: Path = OUT,
             calibration: Path = typer.Option(None, "--calibration", help="The calibration.json that the prediction was made with."),
             overrides: list[str] = SET, runner: str = RUNNER, as_json: bool = JSON) -> None:
    """Compare a run with its prediction; fit the calibration, going on from the one the prediction was made with.

    Example: hetrl validate --from out/ --job infra/jobs/tiny-grpo.yaml --out out/
    """
    log = folder / FILE["throughput"]
    inputs: dict[str, Any] = {"job": load_job(str(job), overrides), "throughput": Throughput.from_jsonl(_bytes(log), where=str(log))}
    for cls in (Topology, Plan, Prediction, Search, Deployment):
        inputs[cls.artifact] = cls.read(folder / FILE[cls.artifact])
    if calibration:
        inputs["calibration"] = Calibration.read(calibration)
    run_stage("validate", inputs, {}, out, runner, as_json)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", fix="check the path") from None


def run_stage(stage: StageName, inputs: dict[str, Any], parameters: dict[str, Any], out: Path, runner: str, as_json: bool, *,
              while_running: Callable[[Path], AbstractContextManager[None]] = lambda workdir: nullcontext(),
              context: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run one stage on documents, copy what it made to ``out``, and return its summary with the paths of the files.

    ``while_running`` is entered around the stage, with its work folder; ``context``: an earlier document to compare with.
    With ``as_json`` the summary is the last line on standard output, also where no plan is feasible.
    """
    started = datetime.now(UTC)
    kind = _cluster_kind(inputs, parameters)
    check_runner(kind, runner)
    launched, folder = make_runner(runner), _seen_by_the_lab() if kind == "lab" else None
    try:
        with StageProgress(stage, console) as progress, run_alone(
            stage, inputs, parameters, runner=launched, on_event=lambda event: progress.on_event(stage, event), while_running=while_running,
            folder=folder, context=context
        ) as alone:
            seconds = (datetime.now(UTC) - started).total_seconds()
            progress.finish(StepResult(stage, "", False, seconds, str(out), alone.summary))
            for path in alone.export(out):
                console.print(f"  {path}", markup=False)
    except InfeasiblePlan as error:
        if as_json:
            typer.echo(json.dumps({"feasible": False, "violations": error.details.get("violations", []), "fix": error.fix}))
        raise
    made = {Path(name).stem if name.endswith((".json", ".jsonl")) else name: str(out / name) for name in alone.files}
    if as_json:
        typer.echo(json.dumps(alone.summary | made))
    return alone.summary | made


def _cluster_kind(inputs: dict[str, Any], parameters: dict[str, Any]) -> str:
    """Of the topology that is given, or of the cluster that is to be profiled."""
    given = inputs.get("topology")
    return given.cluster.kind if isinstance(given, Topology) else str(parameters.get("cluster", {}).get("kind", ""))


def _seen_by_the_lab() -> Path:
    """Where work folders must be for the lab's machines to read model and data in them."""
    WORK.mkdir(parents=True, exist_ok=True)
    return WORK.absolute()
