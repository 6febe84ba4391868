"""The docker runner against a real engine, with a tiny image made here: every way a stage can end, and what it can reach."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from artifacts.errors import InfeasiblePlan, InputError, StageCrashed, StageTimeout
from artifacts.invocation import Log, Outcome, Progress, StageRequest
from flows.launch import Mount
from flows.launch.container import stop_and_remove
from flows.launch.docker_runner import DockerRunner
from flows.launch.owner import Owner
from tests.flows.launch.tiny_stages import Events

pytestmark = pytest.mark.docker
Make = Callable[..., StageRequest]


class Seen(BaseException):
    """Carries what the engine says of a running container."""


def looked_at(runner: DockerRunner, engine: docker.DockerClient, request: StageRequest, **fields: Any) -> dict[str, Any]:
    """What the engine says of the container of ``request`` while it runs; then the run is cancelled."""
    def on_event(event: Log | Progress | Outcome) -> None:
        if event.message == "ready":
            raise Seen(engine.containers.list(filters={"label": f"hetrl.run-id={request.run_id}"})[0].attrs)

    with pytest.raises(Seen) as caught:
        runner.run(request, on_event=on_event, **fields)
    attributes: dict[str, Any] = caught.value.args[0]
    return attributes


def test_events_of_a_good_stage_arrive_in_order(runner: DockerRunner, far: Make, events: Events, tmp_path: Path) -> None:
    result = runner.run(far("good"), on_event=events)
    assert result.outcome.version == "v1" and result.returncode == 0
    assert result.outcome.summary == {"workdir": "/hetrl/work", "cwd": "/hetrl/work"}
    told = [e for e in events if not (isinstance(e, Log) and e.message == "a library speaks")]
    assert told[:3] == [Progress(done=1, total=2, message="half", values={"loss": 0.5}), Log(message="working"),
                        Log(level="debug", message="plain text on standard output")]
    assert told[3:] == [result.outcome] and Log(level="debug", message="a library speaks") in events
    assert "working" in (tmp_path / "work" / "good.log").read_text()


def test_noise_is_taken_in_whole(runner: DockerRunner, far: Make, events: Events) -> None:
    assert runner.run(far("noisy"), on_event=events).outcome.version == "v4"
    logs = events.logs
    assert [m for m in logs if m.startswith("line ")] == [f"line {n}" for n in range(20000)]
    assert {"\ufffd\ufffd not utf-8 \ufffd", "30%", "in pieces \u20ac", "e" * 100000} <= set(logs)


def test_a_reported_error_is_raised_as_what_it_is(runner: DockerRunner, far: Make, events: Events) -> None:
    with pytest.raises(InfeasiblePlan) as caught:
        runner.run(far("infeasible"), on_event=events)
    assert (caught.value.message, caught.value.fix, caught.value.details["violations"]) == ("nothing fits", "add a GPU", ["memory"])


@pytest.mark.parametrize(("stage", "says"), [
    ("bug", "exited with status 1 without an outcome.*ValueError: a bug in the stage"),
    ("silent", "exited with status 5 without an outcome; it printed nothing"),
    ("killed", "ended by SIGKILL.*about to die"),
    ("hungry", r"ran out of memory \(limit 256m\).*eating"),
])
def test_a_stage_that_ends_without_an_outcome_has_crashed(runner: DockerRunner, far: Make, events: Events, stage: str, says: str) -> None:
    with pytest.raises(StageCrashed, match=says):
        runner.run(far(stage), on_event=events)


@pytest.mark.parametrize("stage", ["polite", "stubborn", "waits_with_children"])
def test_a_stage_past_its_deadline_is_stopped_and_removed(hasty: DockerRunner, far: Make, events: Events, stage: str,
                                                           late_when_ready: Callable[..., None]) -> None:
    with pytest.raises(StageTimeout, match=f"stage {stage} did not finish within 10 min 0 s"):
        hasty.run(far(stage), on_event=late_when_ready, timeout_s=600)
    assert any(m == "ready" or m.startswith("pids") for m in events.logs)


def test_a_stage_that_hangs_after_its_outcome_is_ended(hasty: DockerRunner, far: Make, events: Events) -> None:
    assert hasty.run(far("hangs_at_exit"), on_event=events).outcome.version == "v2"


def test_ctrl_c_stops_and_removes(hasty: DockerRunner, far: Make) -> None:
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])

    def on_event(event: Log | Progress | Outcome) -> None:
        if event.message == "ready":
            timer.start()

    with pytest.raises(KeyboardInterrupt):
        hasty.run(far("stubborn"), on_event=on_event)


def test_an_exception_of_the_caller_stops_and_removes(runner: DockerRunner, far: Make) -> None:
    def on_event(event: Log | Progress | Outcome) -> None:
        raise LookupError("the caller's own")

    with pytest.raises(LookupError):
        runner.run(far("polite"), on_event=on_event)


def test_a_container_removed_by_somebody_is_reported_as_lost(runner: DockerRunner, far: Make, engine: docker.DockerClient) -> None:
    def on_event(event: Log | Progress | Outcome) -> None:
        if event.message == "ready":
            engine.containers.list(filters={"label": "hetrl.run-id=run-1"})[0].remove(force=True)

    with pytest.raises(StageCrashed, match="stage stubborn was lost: its container was removed by somebody else"):
        runner.run(far("stubborn"), on_event=on_event)


# --- what a stage can reach ------------------------------------------------------------------------------------------


def test_a_stage_has_no_privileges(runner: DockerRunner, far: Make, events: Events, tmp_path: Path) -> None:
    seen = runner.run(far("look"), on_event=events).outcome.summary
    assert seen["uid"] != 0 and (seen["uid"] == 65534 or os.geteuid() != 0)
    assert seen["capabilities"] == 0 and seen["no_new_privileges"] == 1 and seen["seccomp"] == 2
    assert seen["writable"] == ["/dev/shm", "/tmp", "/hetrl/work"]
    assert seen["parent"] in ("docker-init", "tini", "catatonit") and seen["home"] == "/tmp"
    assert seen["host"] == socket.gethostname()
    assert seen["shm_bytes"] == 32 * 2**20 and "eth0" in seen["interfaces"]
    assert (tmp_path / "work" / "note.txt").read_text() == "left in the work folder"


def test_credentials_travel_by_environment_only(runner: DockerRunner, far: Make, events: Events, engine: docker.DockerClient,
                                                tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "planted/secret+value"
    for name, value in {"AWS_ACCESS_KEY_ID": "AKIAPLANTED", "AWS_SECRET_ACCESS_KEY": secret, "AWS_VAULT": "x", "HETRL_S3_ATTEMPTS": "2",
                        "HETRL_DOCKER_PIDS": "100", "HETRL_UI_PASSWORD": "planted-too-long"}.items():
        monkeypatch.setenv(name, value)
    seen = runner.run(far("look"), on_event=events).outcome.summary
    assert seen["variables"] == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HETRL_S3_ATTEMPTS"]
    assert seen["secret_length"] == len(secret)

    attributes = looked_at(runner, engine, far("polite"), labels={"hetrl.note": f"has {secret}", "hetrl.api": "http://127.0.0.1:4200"})
    labels = attributes["Config"]["Labels"]
    assert labels["hetrl.note"] == "has ***" and labels["hetrl.api"] == "http://127.0.0.1:4200"
    assert labels["hetrl.managed"] == "1" and labels["hetrl.stage"] == "polite" and labels["hetrl.run-id"] == "run-1"
    assert json.loads(labels["hetrl.owner"])["pid"] == os.getpid()
    outside_environment = {**attributes, "Config": {**attributes["Config"], "Env": []}}
    assert "planted" not in json.dumps(outside_environment).lower()
    assert "planted" not in "".join(p.read_text() for p in (tmp_path / "work").iterdir())


def test_a_printed_secret_is_blanked(runner: DockerRunner, far: Make, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted/secret+value")
    runner.run(far("leaky"), on_event=events)
    assert sorted(events.logs) == ["again ***", "the secret is ***"]


def test_a_local_store_is_mounted_at_its_own_path(runner: DockerRunner, make_request: Make, events: Events, tmp_path: Path) -> None:
    summary = runner.run(make_request("writes_store"), on_event=events).outcome.summary
    made = tmp_path / "store" / "made.txt"
    assert made.read_text() == "by the stage"
    assert summary["uid"] == made.stat().st_uid == (tmp_path / "store").stat().st_uid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a store that belongs to somebody else")
def test_root_runs_a_stage_as_the_owner_of_its_store(runner: DockerRunner, make_request: Make, events: Events, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    os.chown(tmp_path / "store", 4321, 4321)
    assert runner.run(make_request("writes_store"), on_event=events).outcome.summary == {"uid": 4321}


def test_extra_mounts_are_read_only_unless_asked(runner: DockerRunner, far: Make, events: Events, engine: docker.DockerClient,
                                                 tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model.txt").write_text("weights")
    models = [Mount(tmp_path / "models", "/data")]
    assert runner.run(far("look"), on_event=events, extra_mounts=models).outcome.summary["mounted"] is True
    modes = {m["Destination"]: m["RW"] for m in looked_at(runner, engine, far("polite"), extra_mounts=models)["Mounts"]}
    assert modes == {"/hetrl/work": True, "/data": False}
    with pytest.raises(InputError, match="does not exist"):
        runner.run(far("look"), on_event=events, extra_mounts=[Mount(tmp_path / "nothing", "/data")])


def test_a_store_on_loopback_needs_the_network_of_the_host(runner: DockerRunner, far: Make, events: Events,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:8333")
    seen = runner.run(far("look"), on_event=events).outcome.summary
    assert set(seen["interfaces"]) == set(os.listdir("/sys/class/net"))


# --- whose container it is -------------------------------------------------------------------------------------------


def test_a_sweep_removes_orphans_of_this_machine_only(runner: DockerRunner, images: str, engine: docker.DockerClient) -> None:
    here = Owner.here()
    dead = Owner(here.host, here.pid, here.started - 7, here.boot)  # a pid that now belongs to another process
    owners = {"orphan": dead.to_json(), "living": here.to_json(), "foreign": Owner("elsewhere", 1, 1, "").to_json(), "unknown": "?"}
    made: dict[str, Container] = {}
    try:
        for name, owner in owners.items():
            labels = {"hetrl.managed": "1", "hetrl.run-id": f"test-{name}", "hetrl.owner": owner}
            made[name] = engine.containers.run(images, ["sleep", "600"], labels=labels, init=True, detach=True, network_mode="none")
        ended = runner.sweep()
        assert made["orphan"].name in ended and not {made[n].name for n in ("living", "foreign", "unknown")} & set(ended)
        with pytest.raises(docker.errors.NotFound):
            made["orphan"].reload()
        assert runner.stop_run("test-living") == [made["living"].name]
        assert runner.stop_run("test-living") == []
    finally:
        for container in made.values():
            with suppress(docker.errors.NotFound):
                stop_and_remove(container, grace_s=1)
