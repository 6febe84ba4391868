"""The process runner against real processes: every way a stage can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts.errors import HetrlError, InfeasiblePlan, InputError, RunnerUnavailable, StageCrashed, StageTimeout
from artifacts.invocation import Log, Outcome, Progress, StageRequest
from flows.launch import Mount
from flows.launch.owner import Owner
from flows.launch.process import ProcessRunner
from flows.launch.processes import VARIABLE, Mark, marked
from tests.flows.launch.tiny_stages import Events

Make = Callable[..., StageRequest]


@pytest.fixture
def runner(stage_root: Path) -> ProcessRunner:
    return ProcessRunner(root=stage_root, grace_s=60, exit_grace_s=60)


@pytest.fixture
def hasty(stage_root: Path) -> ProcessRunner:
    """For stages that do not end by themselves."""
    return ProcessRunner(root=stage_root, grace_s=0.6, exit_grace_s=0.5)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_events_of_a_good_stage_arrive_in_order(runner: ProcessRunner, make_request: Make, events: Events, tmp_path: Path) -> None:
    result = runner.run(make_request("good"), on_event=events)
    assert result.outcome.version == "v1" and result.returncode == 0 and result.seconds > 0
    told = [e for e in events if not (isinstance(e, Log) and e.message == "a library speaks")]
    assert told[0] == Progress(done=1, total=2, message="half", values={"loss": 0.5})
    assert told[1:3] == [Log(message="working"), Log(level="debug", message="plain text on standard output")]
    assert told[3] == result.outcome and len(events) == 5
    assert Log(level="debug", message="a library speaks") in events
    assert {"working", "plain text on standard output", "a library speaks"} == set(result.tail)


def test_the_stage_finds_its_request_in_its_work_folder(runner: ProcessRunner, make_request: Make, events: Events, tmp_path: Path) -> None:
    result = runner.run(make_request("good"), on_event=events)
    work = str(tmp_path / "work")
    assert result.outcome.summary == {"workdir": work, "cwd": work}
    assert json.loads((tmp_path / "work" / "request.json").read_text())["version"] == "v1"
    assert "a library speaks" in (tmp_path / "work" / "good.log").read_text()


def test_a_reported_error_is_raised_as_what_it_is(runner: ProcessRunner, make_request: Make, events: Events) -> None:
    with pytest.raises(InfeasiblePlan) as caught:
        runner.run(make_request("infeasible"), on_event=events)
    assert (caught.value.message, caught.value.fix) == ("nothing fits", "add a GPU")
    assert caught.value.details["violations"] == ["memory"]


def test_an_unknown_kind_of_error_is_a_crash(runner: ProcessRunner, make_request: Make, events: Events) -> None:
    with pytest.raises(StageCrashed, match="odd"):
        runner.run(make_request("unheard"), on_event=events)


@pytest.mark.parametrize(("stage", "says", "status"), [
    ("bug", "exited with status 1 without an outcome.*ValueError: a bug in the stage", 1),
    ("silent", "exited with status 5 without an outcome; it printed nothing", 5),
    ("killed", "ended by SIGKILL.*out of memory.*about to die", -signal.SIGKILL),
])
def test_a_stage_that_ends_without_an_outcome_has_crashed(runner: ProcessRunner, make_request: Make, events: Events,
                                                          stage: str, says: str, status: int) -> None:
    with pytest.raises(StageCrashed, match=says) as caught:
        runner.run(make_request(stage), on_event=events)
    assert caught.value.details["returncode"] == status
    assert Path(caught.value.details["log"]).is_file()


def test_a_crash_after_publishing_is_a_success_with_a_warning(runner: ProcessRunner, make_request: Make, events: Events) -> None:
    result = runner.run(make_request("late_crash"), on_event=events)
    assert result.returncode == 7 and result.outcome.version == "v1"
    assert [e.level for e in events if isinstance(e, Log)] == ["warning"]


@pytest.mark.parametrize(("stage", "at_least"), [("polite", 0.0), ("stubborn", 0.6)])
def test_a_stage_past_its_deadline_is_stopped(hasty: ProcessRunner, make_request: Make, late_when_ready: Callable[..., None],
                                               stage: str, at_least: float) -> None:
    started = time.monotonic()
    with pytest.raises(StageTimeout, match=f"stage {stage} did not finish within 10 min 0 s.*ready"):
        hasty.run(make_request(stage), on_event=late_when_ready, timeout_s=600)
    assert time.monotonic() - started >= at_least, "a stage that does not end has its grace"
    assert not mine()


def test_a_deadline_counts_from_the_start(runner: ProcessRunner, make_request: Make, events: Events) -> None:
    with pytest.raises(StageTimeout, match=r"stage polite did not finish within 1\.00 s"):
        runner.run(make_request("polite"), on_event=events, timeout_s=1)
    assert not mine()


def test_a_version_published_while_stopping_counts(runner: ProcessRunner, make_request: Make, late_when_ready: Callable[..., None]) -> None:
    assert runner.run(make_request("finishes_when_asked"), on_event=late_when_ready, timeout_s=600).outcome.version == "v9"


def test_a_stage_that_hangs_after_its_outcome_is_ended(hasty: ProcessRunner, make_request: Make, events: Events) -> None:
    result = hasty.run(make_request("hangs_at_exit"), on_event=events)
    assert result.outcome.version == "v2" and result.returncode == -signal.SIGTERM
    assert any("does not exit" in m for m in events.logs)


def test_children_are_ended_with_the_stage_in_its_group_or_not(runner: ProcessRunner, make_request: Make, events: Events) -> None:
    result = runner.run(make_request("leaves_children"), on_event=events)
    pids = result.outcome.summary["pids"]
    assert len(pids) == 2 and not any(running(p) for p in pids)


def mine() -> list[Mark]:
    """Marks of live processes that this test process launched."""
    return [mark for _, mark in marked() if mark.owner.pid == os.getpid()]


class Cancelled(BaseException):
    pass


@pytest.mark.parametrize("raised", [Cancelled, KeyboardInterrupt, ValueError])
def test_whatever_the_caller_raises_ends_the_stage(runner: ProcessRunner, make_request: Make, raised: type[BaseException]) -> None:
    pids: list[int] = []

    def on_event(event: Log | Progress | Outcome) -> None:
        if event.message.startswith("pids"):
            pids.extend(int(p) for p in event.message.split()[1:])
            raise raised("stop")

    with pytest.raises(raised):
        runner.run(make_request("waits_with_children"), on_event=on_event)
    assert len(pids) == 3 and not any(running(p) for p in pids)


def test_ctrl_c_while_waiting_ends_the_stage(runner: ProcessRunner, make_request: Make) -> None:
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])

    def on_event(event: Log | Progress | Outcome) -> None:
        if event.message == "ready":
            timer.start()

    with pytest.raises(KeyboardInterrupt):
        runner.run(make_request("polite"), on_event=on_event)
    assert not mine()


def test_noise_is_taken_in_whole(runner: ProcessRunner, make_request: Make, events: Events, tmp_path: Path) -> None:
    result = runner.run(make_request("noisy"), on_event=events)
    logs = events.logs
    assert result.outcome.version == "v4", "the last outcome wins, also without a line end"
    assert logs[0] == "\ufffd\ufffd not utf-8 \ufffd"
    assert any(m.startswith("xxx") and m.endswith(f"({2**20} bytes cut)") for m in logs)
    assert [m for m in logs if m.startswith("line ")] == [f"line {n}" for n in range(20000)]
    assert {'{"event":"log","message":', '{"event":"nonsense"}', "30%", "in pieces \u20ac", "e" * 100000} <= set(logs)
    assert all(len(line) < 400 for line in result.tail) and len(result.tail) == 30
    assert (tmp_path / "work" / "noisy.log").read_text().count("\n") == len(events)


def test_secrets_of_the_environment_are_blanked(runner: ProcessRunner, make_request: Make, events: Events, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted/secret+value")
    result = runner.run(make_request("leaky"), on_event=events)
    assert sorted(events.logs) == ["again ***", "the secret is ***"]
    everything = "".join(p.read_text() for p in (tmp_path / "work").iterdir()) + repr(result)
    assert "planted" not in everything


def test_a_mount_elsewhere_cannot_be_had(runner: ProcessRunner, make_request: Make, events: Events, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot see"):
        runner.run(make_request("good"), on_event=events, extra_mounts=[Mount(tmp_path, "/data")])
    runner.run(make_request("good"), on_event=events, extra_mounts=[Mount(tmp_path, str(tmp_path))])


def test_an_unknown_stage_is_named_with_those_there_are(runner: ProcessRunner) -> None:
    with pytest.raises(InputError, match=r"no stage named 'nope'.*good"):
        runner.code_digest("nope")
    with pytest.raises(InputError):
        runner.code_digest("../artifacts")


def test_a_python_that_is_not_there(stage_root: Path, make_request: Make, events: Events) -> None:
    with pytest.raises(RunnerUnavailable, match="No such file"):
        ProcessRunner(root=stage_root, python="/nonexistent/python").run(make_request("good"), on_event=events)
    with pytest.raises(RunnerUnavailable, match="'stages' is not in"):
        ProcessRunner(root=stage_root / "artifacts")


def sleeper(mark: Mark) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, VARIABLE: mark.to_json()})


def dead_owner() -> Owner:
    """The owner of a process that has ended."""
    code = "from flows.launch.owner import Owner; print(Owner.here().to_json())"
    owner = Owner.parse(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert owner is not None
    return owner


def test_a_sweep_ends_orphans_only(runner: ProcessRunner) -> None:
    here = Owner.here()
    dead = dead_owner()
    orphan = sleeper(Mark("r1", "train", "t1", dead))
    others = [
        sleeper(Mark("r2", "train", "t2", here)),
        sleeper(Mark("r3", "train", "t3", Owner("elsewhere", dead.pid, dead.started, dead.boot))),
    ]
    reused = sleeper(Mark("r4", "train", "t4", Owner(here.host, here.pid, here.started - 5, here.boot)))
    try:
        time.sleep(0.1)
        ended = runner.sweep()
        assert {f"train of run r1 (pid {orphan.pid})", f"train of run r4 (pid {reused.pid})"} <= set(ended)
        assert orphan.wait(60) == reused.wait(60) == -signal.SIGTERM
        assert all(p.poll() is None for p in others)
        assert runner.stop_run("r2") == [f"train of run r2 (pid {others[0].pid})"]
        assert others[0].wait(60) == -signal.SIGTERM and others[1].poll() is None
    finally:
        for process in (orphan, reused, *others):
            process.kill()
            process.wait()


def test_errors_are_of_the_family(runner: ProcessRunner, make_request: Make, events: Events, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HetrlError, match="cannot write the stage's work folder"):
        runner.run(make_request("good", workdir=str(tmp_path / "file" / "work")), on_event=events)
