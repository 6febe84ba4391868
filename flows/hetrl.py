"""The Prefect flow ``hetrl``: a thin layer over :mod:`flows.pipeline`. Its deployments are in ``prefect.yaml``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any, Literal

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed, State
from pydantic import Field

from artifacts.errors import HetrlError
from artifacts.manifest import Manifest
from flows import events
from flows.budget import typed
from flows.graph import SPEC, StageName
from flows.launch import chosen_runner, make_runner
from flows.pipeline import Pipeline, StepResult
from flows.replan import compare, plan_in_force
from flows.review import Answer, Review, ask
from flows.session import DEFAULT_JOB, RunRequest, new_run_id, open_run
from flows.slots import cluster_slot, takes_the_cluster

ReviewMinutes = Annotated[float, Field(ge=0, le=7 * 24 * 60)]


def _stop_what_is_left(flow: Any, flow_run: FlowRun, state: State) -> None:
    """After a cancel or a crash: stop the stage of this run, wherever it runs."""
    parameters = flow_run.parameters or {}
    make_runner(chosen_runner(parameters.get("runner", ""))).stop_run(run_id_of(str(flow_run.id)))


def run_id_of(flow_run_id: str) -> str:
    """The run id that processes, containers and leases carry."""
    return flow_run_id.replace("-", "")[:12]


def _worth_a_retry(task: Any, task_run: Any, state: State) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, HetrlError) and error.retryable


def _run_name() -> str:
    given = runtime.flow_run.parameters
    only = given.get("only")
    return f"{given.get('cluster') or 'latest topology'}: " + (only or f"{given.get('from_stage')} to {given.get('until_stage')}")


@task(task_run_name="{stage}", retries=2, retry_delay_seconds=[2, 10], retry_condition_fn=_worth_a_retry, cache_policy=NO_CACHE,
      persist_result=False)
def stage_task(stage: StageName, pipeline: Pipeline, after: StepResult | None) -> Any:
    """One stage. Called directly, never submitted: only in the main thread do a cancel and a time-out reach the stage."""
    log = events.StageLog(stage, get_run_logger())
    try:
        result = pipeline.step(stage, log)
    except HetrlError as error:
        if error.retryable:
            raise
        return Failed(message=error.line)
    if result.hit:
        return Completed(name="Cached", message=f"{stage}@{result.version} stands: {result.reason}", data=result)
    return result


@flow(name="hetrl", flow_run_name=_run_name, on_cancellation=[_stop_what_is_left],
      on_crashed=[_stop_what_is_left], validate_parameters=True)
def hetrl(
    job: str = DEFAULT_JOB,
    cluster: str = "local",
    from_stage: StageName = "profile",
    until_stage: StageName = "validate",
    only: StageName | None = None,
    force: bool = False,
    dry_run: bool = False,
    runner: Literal["", "process", "docker"] = "",
    engine: Literal["verl"] = "verl",
    store: str = "",
    budget: str | float = "",
    topology: str = "",
    warm_start: bool = False,
    prefer_stable: bool = False,
    review_minutes: ReviewMinutes = 0,
    on_silence: Answer = "adopt",
    reason: str = "",
) -> Any:
    """Profile the cluster, plan the job on it, deploy, train, and check the predictions; what has not changed is not done again.

    Args:
        job: Path of the job (YAML); empty: the latest job in the store. Ignored when the run starts after schedule.
        cluster: local, lab, ray:auto, ray://host:port, or the path of an inventory. Empty, from schedule on: the latest topology.
        from_stage: First stage; earlier ones are taken from the store.
        until_stage: Last stage.
        only: Just this stage.
        force: Run the selected stages even if nothing changed.
        dry_run: Say what would run and why.
        runner: process: local processes. docker: a container per stage. Empty: the worker's HETRL_RUNNER, else process.
        engine: What trains.
        store: Store URL; empty: the worker's HETRL_STORE.
        budget: Budget of the search: seconds (10s, 2m) or plan evaluations (5000); empty: the stage's own.
        topology: Version of the topology to plan on (a run that starts at schedule); empty: the latest.
        warm_start: Start the search from the latest plans.
        prefer_stable: Start from them, and move only what pays for itself within a hundred iterations.
        review_minutes: Pause so long before a plan that moves something is adopted, for a person to look at it; 0: do not wait.
        on_silence: What holds when nobody answered within the review window.
        reason: Why the plan is made again; shown with the plan diff.
    """
    log = get_run_logger()
    starts_early = (only or from_stage) in ("profile", "schedule")
    request = RunRequest(job=(job or None) if starts_early else None, overrides=(f"engine.name={engine}",) if starts_early and job else (),
                         cluster=(cluster or None) if starts_early else None, store=store, runner=chosen_runner(runner),
                         budget=typed(budget), topology=topology, warm=warm_start, prefer_stable=prefer_stable, only=only, force=force,
                         from_stage=None if only else from_stage, until_stage=None if only else until_stage)
    run_id = run_id_of(str(runtime.flow_run.id)) if runtime.flow_run.id else new_run_id()
    try:
        pipeline = open_run(request, run_id=run_id)
        if dry_run:
            lines = [f"{r.stage}: {'hit' if r.hit else 'runs'} ({r.reason})" for r in pipeline.preview()]
            for line in lines:
                log.info(line)
            return lines
        return _run(pipeline, review_s=60 * review_minutes, on_silence=on_silence, reason=reason)
    except HetrlError as error:
        return Failed(message=error.line)


def _run(pipeline: Pipeline, *, review_s: float, on_silence: Answer, reason: str) -> Any:
    log = get_run_logger()
    results: list[StepResult] = []
    holds = False
    with ExitStack() as slot:
        for stage in pipeline.options.selection.stages:
            before = plan_in_force(pipeline) if stage == "schedule" else None
            if not holds and takes_the_cluster(pipeline, stage):
                log.info("waiting until no other run trains on the cluster")
                slot.enter_context(cluster_slot(pipeline))
                holds = True
            after = results[-1] if results else None
            state = stage_task.with_options(retries=SPEC[stage].retries)(stage, pipeline, after, return_state=True)
            events.wait_for_server()
            if not state.is_completed():
                return Failed(message=f"{stage}: {state.message}")
            result = state.result()
            results.append(result)
            log.info("%s: %s %s (%.1f s)", stage, "hit" if result.hit else "made", result.version, result.seconds)
            events.publish(result, pipeline)
            if before is not None and not _adopted(pipeline, before, review_s=review_s, on_silence=on_silence, reason=reason):
                return Completed(name="Kept", message=f"{before.ref} goes on holding")
    return {r.stage: {"version": r.version, "hit": r.hit, "seconds": round(r.seconds, 2)} for r in results}


def _adopted(pipeline: Pipeline, before: Manifest, *, review_s: float, on_silence: Answer, reason: str) -> bool:
    """Show what the new plan changes; where there is a window, ask. False: the plan that was in force is put in force again."""
    try:
        replanned = compare(pipeline, before, reason=reason)
    except HetrlError as error:
        if review_s:
            raise
        get_run_logger().warning("no plan diff: %s", error.line)  # nobody was to be asked: the plan itself is good
        return True
    if replanned is None:
        return True
    events.publish_diff(replanned, pipeline)
    answer = Review()
    if review_s and replanned.diff.changes_anything:
        answer = ask(replanned.markdown, window_s=review_s, on_silence=on_silence)
    if answer.decision == "keep":
        pipeline.store.publish(before.ref)
    what = "adopted" if answer.decision == "adopt" else "not adopted"
    get_run_logger().info("%s: %s%s", replanned.diff.after, what, f": {answer.note}" if answer.note else "")
    events.emit_decision(replanned, pipeline, answer)
    return answer.decision == "adopt"


if __name__ == "__main__":
    hetrl()
