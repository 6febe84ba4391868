"""``hetrl run``: the whole pipeline in this process."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console
from rich.table import Table

from artifacts.errors import InputError
from flows.cli.progress import StageProgress
from flows.cli.summary import print_summary
from flows.graph import ORDER, StageName
from flows.pipeline import Pipeline, StepResult
from flows.session import RunRequest, new_run_id, open_run

console = Console(stderr=True, soft_wrap=True, highlight=False)
_STAGE = f"One of {', '.join(ORDER)}."


def run(
    job: str = typer.Option(None, "--job", help="Job file (YAML). Default: infra/jobs/tiny-grpo.yaml."),
    cluster: str = typer.Option(None, "--cluster", help="local (default), lab, ray:auto, ray://host:port, or the path of an inventory."),
    store: str = typer.Option("", "--store", help="file:///… or s3://… Default: HETRL_STORE, the embedded S3, or .hetrl/store."),
    pipeline: str = typer.Option("hetrl", "--pipeline", help="Name of the pipeline in the store."),
    runner: str = typer.Option("process", "--runner", help="process or docker."),
    from_stage: str = typer.Option(None, "--from", help=f"First stage to run; earlier ones are taken from the store. {_STAGE}"),
    until: str = typer.Option(None, "--until", help=f"Last stage to run. {_STAGE}"),
    only: str = typer.Option(None, "--only", help=f"Just this stage. {_STAGE}"),
    topology: str = typer.Option("", "--topology", help="With --from schedule: plan on this version of the topology."),
    solver: str = typer.Option("", "--solver", help="Solver of the schedule stage: auto, sha-ea or random."),
    budget: str = typer.Option("", "--budget", help="Budget of the search: seconds (10s) or plan evaluations (5000)."),
    seed: int = typer.Option(None, "--seed", help="Seed of the search."),
    force: bool = typer.Option(False, "--force", help="Run the selected stages even if nothing changed."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would run and why; run nothing."),
    overrides: list[str] = typer.Option([], "--set", help="Change one field of the job: --set batch.prompts=16. Repeatable."),
    as_json: bool = typer.Option(False, "--json", help="The last line on standard output is one JSON object."),
) -> None:
    """Run profile → schedule → deploy → train → validate, skipping what has not changed.

    Example: hetrl run --job infra/jobs/tiny-grpo.yaml --cluster local
    """
    request = RunRequest(job=job, overrides=tuple(overrides), cluster=cluster, store=store, pipeline=pipeline, runner=runner,
                         from_stage=_stage(from_stage), until_stage=_stage(until), only=_stage(only), force=force, topology=topology,
                         solver=solver, budget=budget, seed=seed)
    opened = open_run(request, run_id=new_run_id())
    if dry_run:
        results = opened.preview()
        _print_preview(results)
    else:
        console.print(f"store {opened.store.url}   pipeline {pipeline}   runner {runner}   run {opened.options.run_id}", style="dim")
        with terminate_as_interrupt():
            results = [_step(opened, stage) for stage in opened.options.selection.stages]
        print_summary(opened, results, console)
    if as_json:
        typer.echo(json.dumps({"dry_run": dry_run} | {
            r.stage: {"version": r.version, "hit": r.hit, "seconds": round(r.seconds, 3), "reason": r.reason} for r in results}))


def _step(opened: Pipeline, stage: StageName) -> StepResult:
    with StageProgress(stage, console) as progress:
        result = opened.step(stage, progress.on_event)
        progress.finish(result)
    return result


def _stage(name: str | None) -> StageName | None:
    if name is None:
        return None
    for stage in ORDER:
        if stage == name:
            return stage
    raise InputError(f"there is no stage {name[:40]!r}", fix=f"choose one of {', '.join(ORDER)}")


def _print_preview(results: list[StepResult]) -> None:
    table = Table(title="what would run", title_justify="left")
    for column in ("stage", "would", "version", "why"):
        table.add_column(column)
    for r in results:
        table.add_row(r.stage, "be a hit" if r.hit else "run", r.version, r.reason)
    console.print(table)


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: the stage is stopped, nothing half-written stays visible."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
