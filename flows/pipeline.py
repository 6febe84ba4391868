"""One run over the stages: decides for each whether an earlier version holds or it runs again, and runs it. Knows no Prefect."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from artifacts.errors import HetrlError, InputError
from artifacts.invocation import Log, Outcome, Progress, StageRequest
from artifacts.job import Job
from artifacts.manifest import Manifest, VersionRef
from artifacts.store import Store
from flows.cluster import is_live
from flows.freeze import freeze_job
from flows.graph import FILE, MAKER, SPEC, Selection, StageName
from flows.keys import committed_with_key, next_version, version_key
from flows.launch import StageRunner
from flows.named_files import READERS, named_files
from flows.upstream import Upstream

OnEvent = Callable[[str, Log | Progress | Outcome], None]
CONTEXT_VERSIONS = 5


@dataclass(frozen=True)
class RunOptions:
    """What the user asked for."""

    store_url: str
    pipeline: str = "hetrl"
    job: Job | None = None
    cluster: dict[str, Any] | None = None
    selection: Selection = field(default_factory=Selection)
    force: bool = False
    topology: str = ""
    run_id: str = ""
    warm: bool = False
    """Whether a search starts from the latest plans. Not part of a version's key: it makes a search shorter, not another one."""
    prefer_stable: bool = False
    """Whether a new plan stays near the latest where moving does not pay. Not part of the key either: its plan is then in force."""
    workdir: Path = Path(".hetrl/work")
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """What is to happen with a stage: ``hit`` holds the version that stands, else ``version`` is to be made."""

    stage: StageName
    key: str
    version: str
    reason: str
    hit: Manifest | None = None
    inputs: dict[str, VersionRef] = field(default_factory=dict)


@dataclass(frozen=True)
class StepResult:
    stage: StageName
    version: str
    hit: bool
    seconds: float
    reason: str
    summary: dict[str, Any]


class Pipeline:
    """Steps over the selected stages. ``known`` maps artifact → version for all that later stages may read."""

    def __init__(self, store: Store, runner: StageRunner, options: RunOptions) -> None:
        self.store = store
        self.runner = runner
        self.options = options
        self._upstream = Upstream(store)
        self.known: dict[str, VersionRef] = {}
        self._new_job: VersionRef | None = None

    def prepare(self) -> None:
        """Freeze the job, not yet in force, and find what the selected stages read from stages that do not run. Writes nothing else."""
        first = self.options.selection.stages[0]
        known = self._upstream.before(first, cluster=self.options.cluster, topology=self.options.topology)
        job = self.options.job
        if first in ("profile", "schedule"):
            if job is not None:
                known["job"] = self._new_job = freeze_job(self.store, job)
            elif "job" not in known and self.options.selection.stages != ("profile",):
                raise InputError("no job was given", fix="add --job infra/jobs/tiny-grpo.yaml")
        elif job is not None and self.store.read(known["job"], Job).identity() != job.identity():
            made_for = self.store.read(known["job"], Job).name
            raise InputError(f"the latest versions before {first} were made for another job ({made_for!r})",
                             fix="start from schedule, or leave the job out")
        self.known = known

    # -- decisions ------------------------------------------------------------------------------------------------
    def decide(self, stage: StageName) -> Decision:
        """Whether an earlier version of ``stage`` stands, and if not, why it runs."""
        missing = [name for name in SPEC[stage].inputs if name not in self.known]
        if missing:
            raise InputError(f"{stage} needs {', '.join(missing)}, which no earlier stage has made",
                             fix=f"run from {MAKER[missing[0]]}")
        choices = [self._decision(stage, calibration) for calibration in self._calibrations(stage)]
        decision = next((d for d in choices if d.hit), choices[0])
        if decision.hit and decision is not choices[0]:
            waits = f"{decision.reason}; a newer calibration waits: hetrl run --from schedule uses it"
            return replace(decision, reason=waits)
        return decision

    def _decision(self, stage: StageName, calibration: VersionRef | None) -> Decision:
        inputs = {name: self.known[name] for name in SPEC[stage].inputs}
        if calibration is not None:
            inputs["calibration"] = calibration
        key = version_key(stage=stage, identities={n: self._identity(n, r) for n, r in inputs.items()},
                          parameters=self.stage_parameters(stage), code_digest=self.runner.code_digest(stage),
                          image_digest=self.runner.image_digest(stage))
        live = stage == "profile" and is_live(self.stage_parameters(stage))
        found = None if live or self.options.force else committed_with_key(self.store, stage, key)
        if found:
            return Decision(stage, key, found.version, "nothing it depends on has changed", found, inputs)
        version = next_version(self.store, stage, key)
        if live:
            reason = "a live cluster is measured every time"
        elif self.options.force:
            reason = "forced"
        else:
            reason = self._why(stage, inputs)
        return Decision(stage, key, version, reason, None, inputs)

    def _identity(self, name: str, ref: VersionRef) -> str:
        return self.store.manifest(ref).files[FILE[name]].identity

    def _calibrations(self, stage: StageName) -> list[VersionRef | None]:
        """Calibrations to consider, first the one a new version would use.

        A plan in force is kept although a newer calibration exists: it is taken up by the next schedule that runs for
        another reason, or when the user starts there.
        """
        if stage == "validate":
            return [self.store.manifest(self.known["prediction"]).inputs.get("calibration")]
        if stage != "schedule":
            return [None]
        latest = self._upstream.latest_with("validate", FILE["calibration"])
        if self.options.force or self.options.selection.stages[0] == "schedule":
            return [latest]
        used = [m.inputs.get("calibration") for m in self._upstream.recent("schedule", 10)]
        return list(dict.fromkeys([latest, *used]))

    def _why(self, stage: StageName, inputs: dict[str, VersionRef]) -> str:
        last = next(iter(self._upstream.recent(stage, 1)), None)
        if last is None:
            return "it has not run before"
        changed = [name for name, ref in inputs.items()
                   if name not in last.inputs or self._identity(name, ref) != self._identity(name, last.inputs[name])]
        if changed:
            return f"changed: {', '.join(changed)}"
        if last.parameters != self.stage_parameters(stage):
            return "its parameters changed"
        if last.producer.code_digest != self.runner.code_digest(stage) or last.producer.image_digest != self.runner.image_digest(stage):
            return "its code or image changed"
        return "an input is gone or its schema changed"

    def stage_parameters(self, stage: StageName) -> dict[str, Any]:
        base = dict(self.options.cluster or {"cluster": {"kind": "local"}}) if stage == "profile" else {}
        return base | self.options.parameters.get(stage, {})

    # -- steps ----------------------------------------------------------------------------------------------------
    def step(self, stage: StageName, on_event: OnEvent) -> StepResult:
        """Make ``stage`` current: an earlier version that stands, or a new one. Raises what the stage reports."""
        started = time.monotonic()
        if self._new_job is not None:
            self.store.publish(self._new_job)
            self._new_job = None
        decision = self.decide(stage)
        if decision.hit:
            self.store.publish(decision.hit.ref)
            manifest = decision.hit
        else:
            manifest = self._launch(decision, on_event)
        self.absorb(manifest)
        return StepResult(stage, manifest.version, decision.hit is not None, time.monotonic() - started, decision.reason, manifest.summary)

    def absorb(self, manifest: Manifest) -> None:
        """What this version made is what later stages of this run read."""
        self.known |= Upstream.made_by(manifest)

    def _launch(self, decision: Decision, on_event: OnEvent) -> Manifest:
        stage = decision.stage
        offered = (*SPEC[stage].context, *(SPEC[stage].warm if self.options.warm or self.options.prefer_stable else ()))
        context = {name: refs for name in offered if (refs := [m.ref for m in self._upstream.recent(MAKER[name], CONTEXT_VERSIONS)])}
        asked = {"prefer_stable": True} if SPEC[stage].warm and self.options.prefer_stable else {}
        request = StageRequest(
            stage=stage, store=self.options.store_url, pipeline=self.options.pipeline, version=decision.version, inputs=decision.inputs,
            context=context, parameters=self.stage_parameters(stage) | asked, run_id=self.options.run_id, runner=self.runner.name,
            code_digest=self.runner.code_digest(stage), image_digest=self.runner.image_digest(stage),
            workdir=str((self.options.workdir / (self.options.run_id or "run") / stage).absolute()))
        files = named_files(self.store.read(decision.inputs["job"], Job)) if stage in READERS else []
        self.runner.run(request, on_event=lambda event: on_event(stage, event), timeout_s=SPEC[stage].timeout_s, extra_mounts=files)
        manifest = self.store.find(stage, decision.version)
        if manifest is None:
            raise HetrlError(f"stage {stage} reported success but its version {decision.version} is not in the store",
                             fix="see the stage's log in the work folder")
        return manifest

    # -- dry run --------------------------------------------------------------------------------------------------
    def preview(self) -> list[StepResult]:
        """What would run and why, without running anything. Of a live cluster it is assumed that nothing has changed."""
        results: list[StepResult] = []
        unknown: set[str] = set()
        assumed: set[str] = set()
        for stage in self.options.selection.stages:
            reads, makes = set(SPEC[stage].inputs), {a for a, maker in MAKER.items() if maker == stage}
            if reads & unknown:
                reason = f"would run unless it comes out the same: {', '.join(sorted(reads & unknown))}"
                results.append(StepResult(stage, "", False, 0.0, reason, {}))
                unknown |= makes
                continue
            decision = self.decide(stage)
            unless = " (if the cluster is found unchanged)" if reads & assumed else ""
            results.append(StepResult(stage, decision.version, decision.hit is not None, 0.0, decision.reason + unless, {}))
            stands = decision.hit
            if stands is None and stage == "profile" and is_live(self.stage_parameters(stage)):
                stands = next((m for m in self._upstream.recent(stage, 20) if m.parameters == self.stage_parameters(stage)), None)
                assumed |= makes
            if stands:
                self.absorb(stands)
                assumed |= makes if reads & assumed else set()
            else:
                unknown |= makes
        return results
