"""An engine, an image, a GPU or a network that is not there: what the docker runner says."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from artifacts.errors import InputError, RunnerUnavailable
from artifacts.invocation import Log, StageRequest
from flows.launch import chosen_runner, make_runner
from flows.launch.docker_runner import DockerRunner
from flows.launch.docker_settings import DockerSettings
from tests.flows.launch.docker_images import PREFIX, ours
from tests.flows.launch.tiny_stages import Events

pytestmark = pytest.mark.docker
Make = Callable[..., StageRequest]


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


def test_the_runner_of_a_place_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETRL_RUNNER", raising=False)
    assert (chosen_runner(""), chosen_runner("docker")) == ("process", "docker")
    monkeypatch.setenv("HETRL_RUNNER", "docker")
    assert (chosen_runner(""), chosen_runner("process")) == ("docker", "process")


GIVE = """
import sys; from pathlib import Path; from flows.launch.access import Access, hand_over; from artifacts.errors import HetrlError
try: hand_over(Path(sys.argv[1]), Access(uid=65534, gid=65534, environment={}, mounts=[], network="none"))
except HetrlError as error: print(error.line)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="root, and setpriv, which takes a right from it")
def test_a_root_that_may_not_give_folders_away_is_told_so(tmp_path: Path) -> None:
    """As the worker of infra/compose.yaml would be, were it root: it has no capability."""
    command = ["setpriv", "--bounding-set", "-chown", "--inh-caps", "-chown", sys.executable, "-c", GIVE, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("InputError: this root may not give ") and "HETRL_UID" in said


def test_a_runner_nobody_knows() -> None:
    with pytest.raises(InputError, match="no runner named 'podman'"):
        make_runner("podman")
