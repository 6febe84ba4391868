"""What runs again and what does not, on the real profile and schedule stages with an inventory, in a folder store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from artifacts.deployment import Deployment
from artifacts.errors import InputError, StoreError
from artifacts.job import Job
from artifacts.manifest import Producer, VersionRef
from artifacts.plan import Plan
from flows.pipeline import Pipeline, StepResult
from flows.session import RunRequest, new_run_id, open_run

ROOT = Path(__file__).parents[2]
JOB = str(ROOT / "infra/jobs/qwen3-4b-grpo.yaml")
PAIR = ROOT / "infra/clusters/workstation-pair.yaml"

Run = Callable[..., list[StepResult]]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return Path(shutil.copy(PAIR, tmp_path / "cluster.yaml"))


@pytest.fixture
def opened(tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pipeline]:
    monkeypatch.chdir(tmp_path)

    def open_with(**options: object) -> Pipeline:
        fields: dict[str, object] = {"job": JOB, "cluster": str(cluster), "until_stage": "schedule", "budget": "300",
                                     "store": (tmp_path / "store").as_uri()}
        request = RunRequest(**{k: v for k, v in (fields | options).items() if v != "not given"})  # type: ignore[arg-type]
        return open_run(request, run_id=new_run_id())

    return open_with


@pytest.fixture
def run(opened: Callable[..., Pipeline]) -> Run:
    def run_with(**options: object) -> list[StepResult]:
        pipeline = opened(**options)
        return [pipeline.step(stage, lambda stage, event: None) for stage in pipeline.options.selection.stages]

    return run_with


def hits(results: list[StepResult]) -> dict[str, bool]:
    return {r.stage: r.hit for r in results}


def test_unchanged_stages_are_hits_and_say_so(run: Run) -> None:
    first = run()
    assert hits(first) == {"profile": False, "schedule": False}
    assert {r.reason for r in first} == {"it has not run before"}
    second = run()
    assert hits(second) == {"profile": True, "schedule": True}
    assert [r.version for r in second] == [r.version for r in first]
    assert {r.reason for r in second} == {"nothing it depends on has changed"}


def test_only_what_depends_on_a_change_runs_again(run: Run, cluster: Path) -> None:
    run()
    job_changed = run(overrides=("batch.responses_per_prompt=4",))
    assert hits(job_changed) == {"profile": True, "schedule": False}
    assert "changed: job" in job_changed[1].reason
    cluster.write_text(cluster.read_text() + "\n# a comment changes the file, not the fleet\n")
    commented = run()
    assert hits(commented) == {"profile": False, "schedule": True}, "the new topology means the same"


def test_a_device_gone_makes_a_new_plan_and_its_return_brings_the_old_one_back(run: Run, cluster: Path) -> None:
    first = run()
    whole = cluster.read_text()
    cluster.write_text(whole.replace("count: 4", "count: 3", 1))
    assert cluster.read_text() != whole
    fewer = run()
    assert hits(fewer) == {"profile": False, "schedule": False}
    assert fewer[1].version != first[1].version
    cluster.write_text(whole)
    again = run()
    assert hits(again) == {"profile": True, "schedule": True}
    assert [r.version for r in again] == [r.version for r in first]


def test_force_makes_a_new_version_beside_the_old(run: Run) -> None:
    first = run()
    forced = run(force=True)
    assert hits(forced) == {"profile": False, "schedule": False}
    assert [r.version for r in forced] == [f"{r.version}.2" for r in first]
    assert hits(run()) == {"profile": True, "schedule": True}


def test_from_takes_the_latest_versions_before_it(run: Run, opened: Callable[..., Pipeline]) -> None:
    first = run()
    pipeline = opened(from_stage="schedule", cluster="not given")
    assert pipeline.known["topology"].version == first[0].version
    assert hits(run(from_stage="schedule", cluster="not given")) == {"schedule": True}
    with pytest.raises(InputError, match="no version of schedule in the store"):
        run(from_stage="deploy", until_stage="deploy", job=None, cluster=None, pipeline="another")
    with pytest.raises(InputError, match="no version of profile for this cluster"):
        run(from_stage="schedule", cluster="local")


def test_another_job_after_schedule_is_refused(run: Run, opened: Callable[..., Pipeline]) -> None:
    run()
    with pytest.raises(InputError, match="made for another job"):
        opened(from_stage="deploy", until_stage="deploy", cluster=None, overrides=("seed=5",))
    known = opened(from_stage="deploy", until_stage="deploy", cluster=None).known
    assert {"job", "topology", "plan", "prediction", "search"} <= set(known)


def test_a_chosen_topology(run: Run, opened: Callable[..., Pipeline], cluster: Path) -> None:
    first = run()
    cluster.write_text(cluster.read_text().replace("count: 4", "count: 3", 1))
    run()
    pipeline = opened(from_stage="schedule", cluster=None, topology=first[0].version[:8])
    assert pipeline.known["topology"].version == first[0].version
    with pytest.raises(InputError, match="0 versions of profile start with 'zzz'"):
        opened(from_stage="schedule", cluster=None, topology="zzz")


def test_preview_says_what_would_run_and_runs_nothing(run: Run, opened: Callable[..., Pipeline]) -> None:
    fresh = opened().preview()
    assert [(r.stage, r.hit) for r in fresh] == [("profile", False), ("schedule", False)]
    assert "unless it comes out the same: topology" in fresh[1].reason
    assert opened().store.versions("profile") == []
    run()
    assert [r.hit for r in opened().preview()] == [True, True]


def test_documents_of_a_run_belong_together(run: Run, opened: Callable[..., Pipeline]) -> None:
    run()
    pipeline = opened(from_stage="deploy", until_stage="deploy", cluster=None)
    plan = pipeline.store.read(pipeline.known["plan"], Plan)
    assert plan.job == pipeline.store.read(pipeline.known["job"], Job).identity()
    assert plan.topology_fingerprint == pipeline.store.manifest(pipeline.known["topology"]).files["topology.json"].identity


def test_later_stages_go_on_from_the_latest_version_of_the_same_plan(run: Run, opened: Callable[..., Pipeline]) -> None:
    first, forced = run(), run(force=True)
    pipeline = opened(from_stage="deploy", until_stage="deploy", cluster=None)
    store, known = pipeline.store, pipeline.known
    old_plan = VersionRef(stage="schedule", version=first[1].version)
    plan = store.read(old_plan, Plan)
    writer = store.new_version("deploy", "d1")
    writer.put_document(Deployment(plan=plan.identity(), topology_fingerprint=plan.topology_fingerprint, cluster="c", nodes=[], ranks=[]))
    now = datetime.now(UTC)
    made = writer.commit(inputs={"job": known["job"], "topology": known["topology"], "plan": old_plan}, context={}, parameters={}, summary={},
                         producer=Producer(hetrl="0", code_digest="", started_at=now, finished_at=now))
    store.publish(made.ref)
    renewed = opened(from_stage="train", until_stage="train", cluster=None, job=None).known
    assert {renewed[a].version for a in ("plan", "prediction", "search")} == {forced[1].version}
    run(overrides=("batch.responses_per_prompt=4",))
    of_another_job = opened(from_stage="train", until_stage="train", cluster=None, job=None).known
    assert {of_another_job[a].version for a in ("plan", "prediction", "search")} == {first[1].version}


def test_an_altered_topology_is_refused_by_the_next_stage(run: Run, tmp_path: Path) -> None:
    run(until_stage="profile")
    [stored] = (tmp_path / "store").rglob("topology.json")
    data = bytearray(stored.read_bytes())
    data[100] ^= 1
    stored.chmod(0o600)
    stored.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"topology\.json"):
        run(from_stage="schedule", cluster="not given")


@pytest.mark.parametrize(("options", "says"), [
    ({"cluster": "nowhere.yaml"}, "there is no cluster 'nowhere.yaml'"),
    ({"job": "nowhere.yaml"}, "cannot read nowhere.yaml"),
    ({"runner": "magic"}, "no runner named 'magic'"),
    ({"store": "ftp://x"}, "ftp"),
])
def test_bad_input_is_found_before_anything_runs(opened: Callable[..., Pipeline], options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        opened(**options)
