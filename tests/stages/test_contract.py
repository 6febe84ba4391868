"""The stage contract, seen from outside: a stage in a process of its own, its lines, its exit status, what it publishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from artifacts.errors import InfeasiblePlan
from artifacts.invocation import Log, Outcome, Progress, StageRequest, parse_event
from artifacts.manifest import VersionRef
from artifacts.store import open_store
from artifacts.store.store import Store
from tests.artifacts import samples

ROOT = Path(__file__).parents[2]

STAGE = """
import sys, time
from artifacts.base import Strict
from artifacts.errors import InfeasiblePlan
from artifacts.job import Job
from artifacts.search import Search
from stages.contract import StageContext, main

class Parameters(Strict):
    what: str = "ok"

def run(ctx: StageContext) -> dict:
    what = ctx.parameters(Parameters).what
    print("a library prints to standard output")
    ctx.log("hello")
    ctx.progress(1, 2, "half way", best=3.5)
    job = ctx.read(Job)
    ctx.write(Search(solver=job.name, status="feasible", seed=0, evaluations=1, seconds=0))
    if what == "infeasible":
        raise InfeasiblePlan("no", fix="add memory", details={"violations": ["a", "b"]})
    if what == "bug":
        raise ZeroDivisionError("a bug")
    if what == "wait":
        ctx.log("waiting")
        time.sleep(600)
    return {"figure": 1}

main("schedule", run)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "store").as_uri(), pipeline="hetrl")


@pytest.fixture
def request_file(tmp_path: Path, store: Store) -> Path:
    from flows.freeze import freeze_job

    ref = freeze_job(store, samples.job())
    return write_request(tmp_path, inputs={"job": ref})


def write_request(tmp_path: Path, **changes: object) -> Path:
    fields: dict[str, object] = {"stage": "schedule", "store": (tmp_path / "store").as_uri(), "pipeline": "hetrl", "version": "v1",
                                 "workdir": str(tmp_path / "work")}
    path = tmp_path / "request.json"
    path.write_text(StageRequest(**(fields | changes)).to_json())  # type: ignore[arg-type]
    return path


def start(tmp_path: Path, request: Path, **variables: str) -> subprocess.Popen[str]:
    script = tmp_path / "stage.py"
    script.write_text(STAGE)
    return subprocess.Popen([sys.executable, str(script), "--request", str(request)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, "PYTHONPATH": str(ROOT), **variables})


def change(request: Path, **parameters: object) -> None:
    body = json.loads(request.read_text())
    request.write_text(json.dumps(body | {"parameters": parameters}))


def outcome_of(process: subprocess.Popen[str]) -> tuple[Outcome, list[Log | Progress | Outcome], str]:
    out, err = process.communicate(timeout=300)
    events = [parse_event(line) for line in out.splitlines()]
    last = events[-1]
    assert isinstance(last, Outcome), out + err
    return last, events, err


def test_a_stage_that_succeeds(tmp_path: Path, store: Store, request_file: Path) -> None:
    process = start(tmp_path, request_file)
    outcome, events, err = outcome_of(process)
    assert process.returncode == 0
    assert outcome.status == "ok"
    assert outcome.summary == {"figure": 1}
    assert [type(e).__name__ for e in events] == ["Log", "Progress", "Outcome"], "libraries' prints must not mix with events"
    assert "a library prints to standard output" in err
    latest = store.latest("schedule")
    assert latest == VersionRef(stage="schedule", version="v1")
    manifest = store.manifest(latest)
    assert manifest.inputs["job"].stage == "job"
    assert manifest.summary == {"figure": 1}


@pytest.mark.parametrize(("what", "status", "kind"), [("infeasible", InfeasiblePlan.exit_status, "InfeasiblePlan"), ("bug", 1, "StageCrashed")])
def test_a_stage_that_fails_publishes_nothing(tmp_path: Path, store: Store, request_file: Path, what: str, status: int, kind: str) -> None:
    change(request_file, what=what)
    process = start(tmp_path, request_file)
    outcome, _, err = outcome_of(process)
    assert (process.returncode, outcome.kind) == (status, kind)
    assert store.find("schedule", "v1") is None
    assert ("Traceback" in err) == (what == "bug"), "expected errors have no traceback, bugs keep theirs"
    if what == "infeasible":
        assert (outcome.fix, outcome.details) == ("add memory", {"violations": ["a", "b"]})


def test_sigterm_stops_it_and_leaves_nothing_visible(tmp_path: Path, store: Store, request_file: Path) -> None:
    change(request_file, what="wait")
    process = start(tmp_path, request_file)
    assert process.stdout is not None
    while "waiting" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    outcome, _, _ = outcome_of(process)
    assert (process.returncode, outcome.status) == (143, "error")
    assert "nothing was published" in outcome.message
    assert store.find("schedule", "v1") is None


def test_a_launcher_that_is_gone_already_gets_nothing_done(tmp_path: Path, store: Store, request_file: Path) -> None:
    mine, gone = start(tmp_path, request_file, HETRL_STAGE_LAUNCHER=str(os.getpid())), start(tmp_path, request_file, HETRL_STAGE_LAUNCHER="1")
    assert gone.communicate(timeout=300)[0] == "" and gone.returncode == 143
    assert outcome_of(mine)[0].status == "ok"


def test_a_killed_launcher_takes_a_stage_with_it_that_says_nothing(tmp_path: Path, store: Store, request_file: Path) -> None:
    """One that writes would notice that nobody reads."""
    change(request_file, what="wait")
    (tmp_path / "stage.py").write_text(STAGE)
    launch = """
import os, subprocess, sys
stage = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, "HETRL_STAGE_LAUNCHER": str(os.getpid())})
while "waiting" not in stage.stdout.readline():
    pass
print(stage.pid, flush=True)
stage.wait()
"""
    command = [sys.executable, "-c", launch, sys.executable, str(tmp_path / "stage.py"), "--request", str(request_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as launcher:
        assert launcher.stdout is not None
        stage = psutil.Process(int(launcher.stdout.readline()))
        launcher.kill()
    _, alive = psutil.wait_procs([stage], timeout=120)
    assert alive == [] or stage.status() == psutil.STATUS_ZOMBIE
    assert store.find("schedule", "v1") is None


def test_what_a_user_can_get_wrong(tmp_path: Path, store: Store, request_file: Path) -> None:
    change(request_file, wat="ok")
    process = start(tmp_path, request_file)
    outcome, _, err = outcome_of(process)
    assert process.returncode == 2
    assert "wat: unknown key; known here: what" in outcome.message
    assert "Traceback" not in err


def test_an_altered_input_is_refused(tmp_path: Path, store: Store, request_file: Path) -> None:
    [stored] = (tmp_path / "store").rglob("job.json")
    data = bytearray(stored.read_bytes())
    data[len(data) // 2] ^= 1
    stored.chmod(0o600)
    stored.write_bytes(bytes(data))
    process = start(tmp_path, request_file)
    outcome, _, _ = outcome_of(process)
    assert (process.returncode, outcome.kind) == (6, "StoreError")
    assert "job.json" in outcome.message


def test_a_missing_request_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, tmp_path / "nowhere.json")
    outcome, _, err = outcome_of(process)
    assert process.returncode == 2
    assert "nowhere.json" in outcome.message
    assert "Traceback" not in err
