"""What an interrupted run leaves in the store, and what the next one takes. Files of an engine are made up, the store is real."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from artifacts.checkpoint import Checkpoint, CheckpointFile
from artifacts.invocation import StageRequest
from artifacts.job import Job
from artifacts.manifest import Producer, VersionRef
from artifacts.store import Store, open_store
from artifacts.throughput import Header, Iteration, Throughput
from artifacts.topology import ClusterRef
from stages.contract import StageContext
from stages.train.checkpoints import STAGE, Checkpoints
from tests.stages.train.support import job, topology

TINY = job()
FILES = {"data.pt": b"order", "actor/optimizer/dist_ckpt/.metadata": b"index", "actor/optimizer/dist_ckpt/__0_0.distcp": b"moments" * 1000}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "store").as_uri())


def checkpoints(store: Store, version: str = "v1", *, of: Job = TINY, cluster: str = "local") -> Checkpoints:
    request = StageRequest(stage="train", store=store.url, pipeline="hetrl", version=version)
    there = topology(1).model_copy(update={"cluster": ClusterRef(kind="local", name=cluster)})
    return Checkpoints(StageContext(request, store=store, out=io.StringIO()), of, there)


def written(folder: Path, step: int) -> Path:
    top = folder / f"global_step_{step}"
    for name, data in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data + str(step).encode())
    return top


def log(steps: int) -> Throughput:
    lines = [Iteration(step=n, time_s=1.0, by_task_s={}, sequences=1, tokens=1) for n in range(1, steps + 1)]
    return Throughput(header=Header(engine="verl", job="j", plan="p", seed=0), iterations=lines)


def save(store: Store, folder: Path, *steps: int, version: str = "v1", of: Job = TINY, cluster: str = "local") -> None:
    own = checkpoints(store, version, of=of, cluster=cluster)
    for step in steps:
        own.save(step, written(folder, step), log(step))


def refs(store: Store) -> list[str]:
    return [ref.version for ref in store.versions(STAGE)]


def test_nothing_is_resumed_where_nothing_was_left(store: Store, tmp_path: Path) -> None:
    assert checkpoints(store).resume(tmp_path / "resume") is None


def test_the_last_checkpoint_comes_back_as_it_was_left(store: Store, tmp_path: Path) -> None:
    save(store, tmp_path / "run", 3, 6)
    assert refs(store) == ["v1-0000006"] and not list((tmp_path / "run").iterdir())
    found = checkpoints(store).resume(tmp_path / "resume")
    assert found is not None and (found.step, found.log.iterations) == (6, log(6).iterations)
    assert found.folder == tmp_path / "resume" / "global_step_6"
    assert {p.relative_to(found.folder).as_posix(): p.read_bytes() for p in found.folder.rglob("*") if p.is_file()} == {
        name: data + b"6" for name, data in FILES.items()}
    assert store.read(VersionRef(stage=STAGE, version="v1-0000006"), Checkpoint).resumable


def test_a_run_that_goes_on_replaces_the_checkpoint_it_came_from(store: Store, tmp_path: Path) -> None:
    """Also where a new plan makes it another version of the stage."""
    save(store, tmp_path, 3)
    own = checkpoints(store, "v2")
    found = own.resume(tmp_path / "resume")
    assert found is not None and found.step == 3
    own.save(6, written(tmp_path, 6), log(6))
    assert refs(store) == ["v2-0000006"]


def test_other_jobs_and_clusters_are_left_alone(store: Store, tmp_path: Path) -> None:
    save(store, tmp_path, 3, version="w1", of=job("tiny-grpo", "seed=5"))
    save(store, tmp_path, 4, version="w2", cluster="elsewhere")
    own = checkpoints(store)
    assert own.resume(tmp_path / "resume") is None
    own.save(1, written(tmp_path, 1), log(1))
    assert sorted(refs(store)) == ["v1-0000001", "w1-0000003", "w2-0000004"]


def test_what_a_finished_run_left_is_removed(store: Store, tmp_path: Path) -> None:
    save(store, tmp_path, 3)
    writer = store.new_version("train", "v1")
    writer.put_bytes("throughput.jsonl", b"")
    now = datetime.now(UTC)
    writer.commit(producer=Producer(hetrl="0", code_digest="", started_at=now, finished_at=now))
    assert checkpoints(store, "v1.2").resume(tmp_path / "resume") is None and refs(store) == []


def test_a_damaged_checkpoint_is_left_out_and_said_so(store: Store, tmp_path: Path) -> None:
    save(store, tmp_path, 3)
    (data,) = (tmp_path / "store").rglob("*data.pt*")
    data.chmod(0o644)
    data.write_bytes(b"Order3")
    out = io.StringIO()
    own = Checkpoints(StageContext(StageRequest(stage="train", store=store.url, pipeline="hetrl", version="v1"), store=store, out=out),
                      TINY, topology(1))
    assert own.resume(tmp_path / "resume") is None
    assert "left out checkpoint@v1-0000003" in out.getvalue() and "global_step_3--data.pt" in out.getvalue()


def test_a_file_cannot_leave_the_folder(store: Store, tmp_path: Path) -> None:
    writer = store.new_version(STAGE, "v1-0000001")
    entry = writer.put_bytes("x--x", b"x")
    outside = CheckpointFile(name="../../x/x", sha256=entry.sha256, size_bytes=1)
    writer.put_document(Checkpoint(step=1, format="verl", files=[outside], resumable=True))
    writer.put_bytes("throughput.jsonl", log(1).to_jsonl().encode())
    now = datetime.now(UTC)
    writer.commit(parameters={"job": TINY.identity(), "cluster": "local", "train": "v1", "step": 1},
                  producer=Producer(hetrl="0", code_digest="", started_at=now, finished_at=now))
    assert checkpoints(store).resume(tmp_path / "a" / "resume") is None
    assert not (tmp_path / "x").exists()
