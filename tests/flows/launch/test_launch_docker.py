"""The docker runner against a real engine, with a tiny image made here: every way a stage can end, and what it can reach."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from artifacts.errors import InfeasiblePlan, InputError, RunnerUnavailable, StageCrashed, StageTimeout
from artifacts.invocation import Log, Outcome, Progress, StageRequest
from flows.launch import Mount, make_runner
from flows.launch.container import stop_and_remove
from flows.launch.docker_runner import DockerRunner
from flows.launch.docker_settings import DockerSettings
from flows.launch.engine import connect
from flows.launch.owner import Owner
from tests.flows.launch.tiny_stages import STAGES, Events

pytestmark = pytest.mark.docker
Make = Callable[..., StageRequest]
PREFIX = "hetrl-test/"
SETTINGS = DockerSettings(image_prefix=PREFIX, memory="256m", shm_size="32m")


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    try:
        return connect()
    except RunnerUnavailable as error:
        pytest.skip(error.line)


@pytest.fixture(scope="session")
def images(engine: docker.DockerClient, stage_root: Path) -> Iterator[str]:
    """One image under the name of every tiny stage; its id."""
    path = Path(__file__).parents[3] / "containers" / "base_from_host.py"
    spec = importlib.util.spec_from_file_location("base_from_host", path)
    assert spec and spec.loader
    base = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(base)
    recipe = f"FROM {base.ensure(base.TAG)}\nENV PYTHONPATH=/app\nCOPY stages /app/stages\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(stage_root / "stages", "stages")
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(recipe)
        tar.addfile(member, io.BytesIO(recipe))
    context.seek(0)
    image, _ = engine.images.build(fileobj=context, custom_context=True, rm=True, forcerm=True, network_mode="none")
    for stage in STAGES:
        image.tag(f"{PREFIX}{stage}", "latest")
    yield str(image.id)
    engine.images.remove(str(image.id), force=True)


def ours(engine: docker.DockerClient) -> list[str]:
    """Containers that this process launched."""
    managed = engine.containers.list(all=True, filters={"label": "hetrl.managed=1"}, ignore_removed=True)
    return [c.name for c in managed if c.labels.get("hetrl.owner") == Owner.here().to_json()]


@pytest.fixture
def runner(images: str, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerRunner]:
    for name in [n for n in os.environ if n.startswith(("AWS_", "HETRL_"))]:
        monkeypatch.delenv(name)
    yield DockerRunner(settings=SETTINGS, grace_s=1.0, exit_grace_s=0.7)
    assert not ours(engine), "a test left containers behind"


@pytest.fixture
def far(make_request: Make) -> Make:
    """Requests for a store that is not a local folder, so that nothing of it is mounted."""
    return lambda stage, **fields: make_request(stage, **{"store": "s3://bucket/prefix", **fields})


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
def test_a_stage_past_its_deadline_is_stopped_and_removed(runner: DockerRunner, far: Make, events: Events, stage: str) -> None:
    started = time.monotonic()
    with pytest.raises(StageTimeout, match=f"stage {stage} did not finish within 5.00 s"):
        runner.run(far(stage), on_event=events, timeout_s=5)
    assert 5 <= time.monotonic() - started < 60
    assert any(m == "ready" or m.startswith("pids") for m in events.logs)


def test_a_stage_that_hangs_after_its_outcome_is_ended(runner: DockerRunner, far: Make, events: Events) -> None:
    assert runner.run(far("hangs_at_exit"), on_event=events).outcome.version == "v2"


def test_ctrl_c_stops_and_removes(runner: DockerRunner, far: Make) -> None:
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])

    def on_event(event: Log | Progress | Outcome) -> None:
        if event.message == "ready":
            timer.start()

    with pytest.raises(KeyboardInterrupt):
        runner.run(far("stubborn"), on_event=on_event)


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
            made[name] = engine.containers.run(images, ["sleep", "60"], labels=labels, init=True, detach=True, network_mode="none")
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


# --- an engine or an image that is not there -------------------------------------------------------------------------


def test_a_missing_image_says_how_to_make_it(runner: DockerRunner, far: Make, events: Events) -> None:
    for call in (lambda: runner.image_digest("schedule"), lambda: runner.run(far("schedule"), on_event=events)):
        with pytest.raises(RunnerUnavailable, match="image hetrl-test/schedule:latest is missing") as caught:
            call()
        assert "python containers/build.py schedule" in caught.value.fix


def test_an_image_is_known_by_its_id(runner: DockerRunner, images: str, far: Make, events: Events) -> None:
    assert runner.image_digest("good") == images
    assert runner.run(far("good", image_digest=images), on_event=events).outcome.status == "ok"
    with pytest.raises(RunnerUnavailable, match="is missing"):
        runner.run(far("good", image_digest="sha256:" + "0" * 64), on_event=events)


def test_an_image_of_other_code_is_run_but_not_silently(runner: DockerRunner, images: str, far: Make, events: Events,
                                                        engine: docker.DockerClient) -> None:
    recipe = io.BytesIO(f"FROM {images}\nLABEL hetrl.code-digest=abc\n".encode())
    image, _ = engine.images.build(fileobj=recipe, rm=True, forcerm=True)
    image.tag(f"{PREFIX}validate", "latest")
    try:
        assert runner.code_digest("validate") == "abc"
        assert runner.run(far("validate"), on_event=events).outcome.version == "v8"
        assert any(isinstance(e, Log) and e.level == "warning" and "python containers/build.py validate" in e.message for e in events)
    finally:
        engine.images.remove(str(image.id), force=True)
        engine.images.get(images).tag(f"{PREFIX}validate", "latest")


def test_gpus_that_the_engine_cannot_give(images: str, far: Make, events: Events, engine: docker.DockerClient) -> None:
    if "nvidia" in engine.info()["Runtimes"]:
        pytest.skip("this engine can give GPUs")
    with pytest.raises(RunnerUnavailable, match="refuses to start stage good") as caught:
        DockerRunner(settings=DockerSettings(image_prefix=PREFIX, gpus="all")).run(far("good"), on_event=events)
    assert "NVIDIA container toolkit" in caught.value.fix
    assert not ours(engine), "the container that could not be started is removed"


def test_a_network_that_is_not_there(images: str, far: Make, events: Events) -> None:
    with pytest.raises(RunnerUnavailable) as caught:
        DockerRunner(settings=DockerSettings(image_prefix=PREFIX, network="nowhere")).run(far("good"), on_event=events)
    assert "HETRL_DOCKER_NETWORK" in caught.value.fix


def test_a_wrong_docker_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    with pytest.raises(RunnerUnavailable, match=r"DOCKER_HOST names unix://.*which does not exist") as caught:
        make_runner("docker")
    assert "unset DOCKER_HOST" in caught.value.fix
    monkeypatch.setenv("DOCKER_HOST", "bogus://engine")
    with pytest.raises(RunnerUnavailable, match=r"cannot be reached.*bogus"):
        make_runner("docker")


def test_an_engine_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    for address in (f"unix://{tmp_path}/dead.sock", "tcp://127.0.0.1:1"):
        monkeypatch.setenv("DOCKER_HOST", address)
        with pytest.raises(RunnerUnavailable, match="is not running") as caught:
            make_runner("docker")
        assert "systemctl start docker" in caught.value.fix


def test_a_password_in_docker_host_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://user:hidden@127.0.0.1:1")
    with pytest.raises(RunnerUnavailable, match=r"tcp://127\.0\.0\.1:1") as caught:
        make_runner("docker")
    assert "hidden" not in caught.value.line


def test_a_context_that_leads_nowhere(tmp_path: Path) -> None:
    if not hasattr(docker.context.ContextAPI, "kwargs_from_context"):
        pytest.skip("this SDK does not use contexts")
    folder = tmp_path / "contexts" / "meta" / hashlib.sha256(b"lost").hexdigest()
    folder.mkdir(parents=True)
    (tmp_path / "config.json").write_text("{}")
    (folder / "meta.json").write_text(json.dumps({
        "Name": "lost", "Metadata": {}, "Endpoints": {"docker": {"Host": f"unix://{tmp_path}/nothing.sock", "SkipTLSVerify": False}}}))
    code = "from flows.launch.engine import connect; connect()"
    env = {**{k: v for k, v in os.environ.items() if k != "DOCKER_HOST"}, "DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "lost"}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False).stderr
    assert "RunnerUnavailable: the Docker context lost names unix://" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide the engine's socket from one process")
def test_docker_that_is_not_installed() -> None:
    code = ("from flows.launch import make_runner; from artifacts.errors import HetrlError\n"
            "try: make_runner('docker')\nexcept HetrlError as error: print(error.line)")
    hide = 'mount -t tmpfs none /run && PATH=/nonexistent exec "$0" -c "$1"'
    env = {k: v for k, v in os.environ.items() if not k.startswith("DOCKER_")}
    done = subprocess.run(["unshare", "-m", "sh", "-c", hide, sys.executable, code], env=env, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.stdout.startswith("RunnerUnavailable: Docker is not installed → type: sudo apt-get install docker.io"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not use Docker")
def test_no_permission_for_the_engine(engine: docker.DockerClient) -> None:
    if os.environ.get("DOCKER_HOST") or not Path("/var/run/docker.sock").is_socket():
        pytest.skip("the engine is not at the usual socket")
    said, back = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            make_runner("docker")
            line = "no error"
        except RunnerUnavailable as error:
            line = error.line
        os.write(back, line.encode())
        os._exit(0)
    os.close(back)
    os.waitpid(child, 0)
    line = os.read(said, 10000).decode()
    os.close(said)
    assert line.startswith("RunnerUnavailable: no permission for the Docker engine") and "usermod -aG docker" in line


def test_a_runner_nobody_knows() -> None:
    with pytest.raises(InputError, match="no runner named 'podman'"):
        make_runner("podman")
