"""After a schedule that changed the plan: what the new one changes against the one in force, kept in the store as ``replan``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from artifacts.base import digest
from artifacts.calibration import Calibration
from artifacts.errors import InfeasiblePlan
from artifacts.holdings import tasklets
from artifacts.invocation import StageRequest
from artifacts.job import Job
from artifacts.manifest import Manifest, Producer, VersionRef
from artifacts.plan import Plan
from artifacts.plan_diff import PlanDiff, devices_gone, task_moves, working_devices
from artifacts.prediction import Prediction
from artifacts.store import open_store
from artifacts.topology import Topology
from artifacts.topology_change import describe_change
from artifacts.version import hetrl_version
from artifacts.views import plan_diff_markdown
from flows.given import put_given
from flows.graph import SPEC
from flows.keys import KEY_LENGTH
from flows.pipeline import Pipeline
from flows.restart import measured_restart_s
from flows.upstream import Upstream

STAGE = "replan"
"""Its folder in the store. No stage makes it: the flow that ordered the plan compares it with the last."""
LOOK_BACK = 20


@dataclass(frozen=True)
class Replanned:
    """``ref``: where in the store the diff is."""

    ref: VersionRef
    diff: PlanDiff
    markdown: str


def plan_in_force(pipeline: Pipeline) -> Manifest | None:
    """The version of schedule that was published last for this run's job on this run's cluster; ask before the run schedules."""
    store = pipeline.store
    cluster = store.manifest(pipeline.known["topology"]).summary.get("cluster")
    job = store.manifest(pipeline.known["job"]).files["job.json"].identity
    for manifest in Upstream(store).recent("schedule", LOOK_BACK):
        topology = store.find("profile", manifest.inputs["topology"].version) if "topology" in manifest.inputs else None
        made_for = store.find("job", manifest.inputs["job"].version) if "job" in manifest.inputs else None
        if topology and made_for and topology.summary.get("cluster") == cluster and made_for.files["job.json"].identity == job:
            return manifest
    return None


def compare(pipeline: Pipeline, before: Manifest, *, reason: str = "") -> Replanned | None:
    """The new plan of this run against the one that was in force; None: it is the same. Publishes the comparison.

    The old plan is priced on the cluster as it is now, by the schedule stage itself.
    """
    store, known = pipeline.store, pipeline.known
    after = store.manifest(known["plan"])
    if after.ref == before.ref or after.files["plan.json"].identity == before.files["plan.json"].identity:
        return None
    job, topology = store.read(known["job"], Job), store.read(known["topology"], Topology)
    old, new = store.read(before.ref, Plan), store.read(after.ref, Plan)
    old_topology = store.read(before.inputs["topology"], Topology)
    stays_s, cannot_stay = _priced_now(pipeline, old, after.inputs.get("calibration"))
    causes = [reason] if reason else []
    causes += [line for line in describe_change(old_topology, topology) if line not in reason]
    if after.inputs.get("calibration") != before.inputs.get("calibration"):
        causes.append(f"predictions are calibrated by {after.inputs.get('calibration', 'nothing')}, "
                      f"were by {before.inputs.get('calibration', 'nothing')}")
    was, now = working_devices(old), working_devices(new)
    gone = devices_gone(old, topology)
    diff = PlanDiff(
        before=str(before.ref), after=str(after.ref), causes=causes, moves=task_moves(job, old, new),
        regrouped=sorted(sorted(g.tasks) for g in old.groups) != sorted(sorted(g.tasks) for g in new.groups),
        tasklets=len(tasklets(new)), gone=gone, taken_up=sorted(now - was), released=sorted(was - now - set(gone)),
        before_s=store.read(before.ref, Prediction).iteration_time_s, stays_s=stays_s, cannot_stay=cannot_stay,
        after_s=store.read(after.ref, Prediction).iteration_time_s,
        restart_s=measured_restart_s(store, topology.cluster.name))
    text = plan_diff_markdown(diff)
    return Replanned(_keep(pipeline, before, after, diff, text), diff, text)


def _keep(pipeline: Pipeline, before: Manifest, after: Manifest, diff: PlanDiff, text: str) -> VersionRef:
    store = pipeline.store
    writer = store.new_version(STAGE, digest([diff.identity(), pipeline.options.run_id])[:KEY_LENGTH])
    writer.put_document(diff)
    writer.put_bytes("plan_diff.md", text.encode())
    now = datetime.now(UTC)
    summary = {"before": diff.before, "after": diff.after, "moves": [m.task for m in diff.moves], "gain": diff.gain,
               "after_s": diff.after_s, "stays_s": diff.stays_s, "load_bytes": diff.load_bytes,
               "tasklets": diff.tasklets, "tasklets_moved": diff.tasklets_moved}
    manifest = writer.commit(inputs={"topology": after.inputs["topology"], "plan": after.ref}, context={"plan": [before.ref]},
                             summary=summary, producer=Producer(hetrl=hetrl_version(), code_digest="", started_at=now, finished_at=now,
                                                                run_id=pipeline.options.run_id))
    store.publish(manifest.ref)
    return manifest.ref


def _priced_now(pipeline: Pipeline, plan: Plan, calibration: VersionRef | None) -> tuple[float | None, list[str]]:
    """(seconds an iteration, []) if the plan stayed as it is on the cluster as it is; (None, why it cannot stay) otherwise."""
    store, known = pipeline.store, pipeline.known
    topology = store.read(known["topology"], Topology)
    inputs = {"job": store.read(known["job"], Job), "topology": topology,
              "plan": plan.model_copy(update={"topology_fingerprint": topology.fingerprint})}
    if calibration is not None:
        inputs["calibration"] = store.read(calibration, Calibration)
    folder = (pipeline.options.workdir / (pipeline.options.run_id or "run") / "old-plan").absolute()
    scratch = open_store((folder / "store").as_uri(), pipeline="files")
    request = StageRequest(stage="schedule", store=scratch.url, pipeline="files", version="priced", inputs=put_given(scratch, inputs),
                           parameters={"price_only": True}, run_id=pipeline.options.run_id, runner=pipeline.runner.name,
                           image_digest=pipeline.runner.image_digest("schedule"), workdir=str(folder / "work"))
    try:
        pipeline.runner.run(request, on_event=lambda event: None, timeout_s=SPEC["schedule"].timeout_s)
    except InfeasiblePlan as error:
        return None, [str(v["message"]) for v in error.details.get("violations", [])] or [error.message]
    return scratch.read(VersionRef(stage="schedule", version="priced"), Prediction).iteration_time_s, []
