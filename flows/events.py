"""What a run shows in Prefect: a thinned log, progress, the plan, predicted against measured, and events others can act on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import httpx
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.events import emit_event

from artifacts.invocation import Log, Outcome, Progress
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.topology import Topology
from artifacts.topology_change import describe_change
from artifacts.validation import Validation
from artifacts.views import plan_markdown, validation_rows
from artifacts.views.plan_diff import headline
from flows.links import link
from flows.pipeline import Pipeline, StepResult
from flows.replan import Replanned
from flows.review import Review

THIN_S = 2.0
"""At most one progress line in so many seconds: the whole log is in the work folder, Prefect gets what a person follows."""
OUTAGE_S = 600.0
"""How long a run waits, between two stages, for a server that does not answer; Prefect's own client gives up after a minute."""
_UNANSWERED_S = 60.0
"""A progress bar that could not be moved is left alone for so long: each try holds up the stage's output."""


def wait_for_server(within_s: float = OUTAGE_S) -> None:
    """Until Prefect's server answers, which may be restarting; after that time what follows says what is wrong."""
    deadline = time.monotonic() + within_s
    with get_client(sync_client=True) as client:
        while client.api_healthcheck() is not None and time.monotonic() < deadline:
            time.sleep(2.0)


class StageLog:
    """Takes a stage's events into the run's log and a progress artifact."""

    def __init__(self, stage: str, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self._stage = stage
        self._logger = logger
        self._shown = 0.0
        self._artifact: Any = None
        self._bar_from = 0.0

    def __call__(self, stage: str, event: Log | Progress | Outcome) -> None:
        if isinstance(event, Log) and event.level != "debug":
            self._logger.log(logging.getLevelName(event.level.upper()), "[%s] %s", stage, event.message)
        elif isinstance(event, Progress):
            self._progress(event)

    def _progress(self, event: Progress) -> None:
        now = time.monotonic()
        if now - self._shown < THIN_S and event.done < event.total:
            return
        self._shown = now
        of = f"{event.done:g}/{event.total:g} " if event.total else ""
        self._logger.info("[%s] %s%s", self._stage, of, event.message)
        if event.total and now >= self._bar_from:
            try:
                self._bar(min(100.0, 100.0 * event.done / event.total), event.message)
            except httpx.HTTPError as error:  # a bar is not worth a training
                self._bar_from = time.monotonic() + _UNANSWERED_S
                self._logger.warning("Prefect's server does not take the progress of %s (%s); the stage goes on", self._stage,
                                     type(error).__name__)

    def _bar(self, percent: float, message: str) -> None:
        if self._artifact is None:
            self._artifact = create_progress_artifact(progress=percent, key=f"hetrl-{self._stage}-progress", description=message)
        else:
            update_progress_artifact(self._artifact, progress=percent, description=message)


def publish(result: StepResult, pipeline: Pipeline) -> None:
    """Artifacts and events after a stage."""
    show = _AFTER.get(result.stage)
    if show:
        show(result, pipeline)


def _after_profile(result: StepResult, pipeline: Pipeline) -> None:
    """The event says whether this run plans anew by itself: an automation that re-plans leaves that one alone."""
    cluster = str(result.summary.get("cluster", "local"))
    if result.hit:
        changes = _changes_against_last(result, pipeline)
    elif result.summary.get("changed") and result.summary.get("previous"):
        changes = list(result.summary.get("changes", []))
    else:
        return
    if changes:
        planned = "schedule" in pipeline.options.selection.stages
        emit_event(event="hetrl.topology.changed",
                   resource={"prefect.resource.id": f"hetrl.cluster.{cluster}", "hetrl.replanned": "by this run" if planned else "not yet"},
                   payload={"cluster": cluster, "version": result.version, "changes": changes, "reason": "; ".join(changes)})


def _changes_against_last(result: StepResult, pipeline: Pipeline) -> list[str]:
    """What changed since the topology that was in force when a version that was made before is found again: a machine that came back."""
    store = pipeline.store
    now = store.read(pipeline.known["topology"], Topology)
    for ref in reversed(store.history("profile")[:-1]):
        before = store.read(ref, Topology)
        if (before.cluster.kind, before.cluster.name) == (now.cluster.kind, now.cluster.name):
            return describe_change(before, now) if before.fingerprint != now.fingerprint else []
    return []


def _after_schedule(result: StepResult, pipeline: Pipeline) -> None:
    known, store = pipeline.known, pipeline.store
    plan, prediction = store.read(known["plan"], Plan), store.read(known["prediction"], Prediction)
    text = plan_markdown(store.read(known["job"], Job), store.read(known["topology"], Topology), plan, prediction)
    create_markdown_artifact(markdown=text, key="hetrl-plan", description=f"Plan {result.version}")
    _link(result, pipeline, "hetrl-plan-report", "Report of the plan")


def _after_validate(result: StepResult, pipeline: Pipeline) -> None:
    validation = pipeline.store.read(pipeline.known["validation"], Validation)
    create_table_artifact(table=validation_rows(validation), key="hetrl-validation",
                          description=f"Predicted against measured: {validation.verdict}")
    _link(result, pipeline, "hetrl-report", "Report of the run")
    if validation.verdict == "off" and not result.hit:
        cluster = pipeline.store.read(pipeline.known["topology"], Topology).cluster.name
        refitted = bool(result.summary.get("calibrated"))
        error = validation.iteration.error
        reason = f"the prediction was off by {error:+.0%}" + (f", most likely {validation.suspect}" if validation.suspect else "")
        emit_event(event="hetrl.prediction.off",
                   resource={"prefect.resource.id": f"hetrl.cluster.{cluster}", "hetrl.refitted": "yes" if refitted else "no"},
                   payload={"cluster": cluster, "version": result.version, "error": error, "suspect": validation.suspect, "reason": reason})


def publish_diff(replanned: Replanned, pipeline: Pipeline) -> None:
    """The plan diff, for the run's page and for whoever listens."""
    create_markdown_artifact(markdown=replanned.markdown, key="hetrl-plan-diff", description=headline(replanned.diff))
    manifest = pipeline.store.manifest(replanned.ref)
    create_link_artifact(link=link(pipeline.store, manifest, "plan_diff.md"), link_text="Plan diff", key="hetrl-plan-diff-file")


def emit_decision(replanned: Replanned, pipeline: Pipeline, answer: Review) -> None:
    """``hetrl.plan.adopted`` or ``hetrl.plan.kept``."""
    cluster = pipeline.store.read(pipeline.known["topology"], Topology).cluster.name
    emit_event(event="hetrl.plan.adopted" if answer.decision == "adopt" else "hetrl.plan.kept",
               resource={"prefect.resource.id": f"hetrl.cluster.{cluster}"},
               payload={"cluster": cluster, "diff": str(replanned.ref), "before": replanned.diff.before, "after": replanned.diff.after,
                        "note": answer.note})


def _link(result: StepResult, pipeline: Pipeline, key: str, text: str) -> None:
    manifest = pipeline.store.find(result.stage, result.version)
    if manifest and "report.html" in manifest.files:
        create_link_artifact(link=link(pipeline.store, manifest, "report.html"), link_text=text, key=key)


_AFTER: dict[str, Callable[[StepResult, Pipeline], None]] = {
    "profile": _after_profile,
    "schedule": _after_schedule,
    "validate": _after_validate,
}
