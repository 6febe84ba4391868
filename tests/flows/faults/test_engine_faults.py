"""The Docker engine is killed while a stage runs. It is a private one (its own socket, data and network namespace): no other is disturbed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.test_engine_script import place, script  # noqa: F401

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.docker, pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("dockerd"), reason="needs root and dockerd")]
STAGE = "import time; print('{\"event\": \"log\", \"message\": \"ready\"}', flush=True); time.sleep(600)"
CLIENT = """
import importlib.util, os, signal, sys
from pathlib import Path
from artifacts.errors import HetrlError
from artifacts.invocation import StageRequest
from flows.launch.docker_runner import DockerRunner
from flows.launch.docker_settings import DockerSettings
import docker, io, tarfile
root, folder = Path(sys.argv[1]), Path(sys.argv[2])
spec = importlib.util.spec_from_file_location("base_from_host", root / "containers/base_from_host.py")
base = importlib.util.module_from_spec(spec); spec.loader.exec_module(base)
context = io.BytesIO()
with tarfile.open(fileobj=context, mode="w") as tar:
    for name, text in (("Dockerfile", f"FROM {base.ensure(base.TAG)}\\nENV PYTHONPATH=/app\\nCOPY s /app/stages/waits\\n"), ("s/__main__.py", sys.argv[3])):
        member = tarfile.TarInfo(name); member.size = len(text.encode()); tar.addfile(member, io.BytesIO(text.encode()))
context.seek(0)
image, _ = docker.from_env().images.build(fileobj=context, custom_context=True, rm=True, network_mode="none")
image.tag("hetrl-fault/waits", "latest")
request = StageRequest(stage="waits", store="s3://bucket/prefix", pipeline="p", version="v1", run_id="fault-1", workdir=str(folder / "work"))
def on_event(event):
    if event.message == "ready":
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
try:
    DockerRunner(settings=DockerSettings(image_prefix="hetrl-fault/", memory="256m", shm_size="32m", network="none"), grace_s=2, exit_grace_s=2).run(
        request, on_event=on_event)
except HetrlError as error:
    print(error.line); sys.exit(error.exit_status)
"""


def test_a_killed_engine_is_named_and_the_run_ends(place: Path) -> None:  # noqa: F811
    try:
        started = script(place, "start")
        assert started.returncode == 0, started.stderr
        env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HETRL_"))}
        env |= {"DOCKER_HOST": f"unix://{place}/s", "PYTHONPATH": str(ROOT), "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "planted"}
        done = subprocess.run([sys.executable, "-c", CLIENT, str(ROOT), str(place), STAGE], env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (8, 9), done.stdout + done.stderr
        assert done.stdout.startswith(("RunnerUnavailable: ", "StageCrashed: ")) and "Traceback" not in done.stderr, done.stderr
        assert "Docker engine" in done.stdout
    finally:
        # The killed engine's containers outlive it; a new one on the same data finds and removes them.
        script(place, "start")
        subprocess.run(["docker", "rm", "-f", *_left(place)], env={**os.environ, "DOCKER_HOST": f"unix://{place}/s"}, capture_output=True, check=False)
        left = _left(place)
        script(place, "stop")
    assert left == []


def _left(place: Path) -> list[str]:  # noqa: F811
    done = subprocess.run(["docker", "ps", "-aq"], env={**os.environ, "DOCKER_HOST": f"unix://{place}/s"}, capture_output=True, text=True, check=False)
    return done.stdout.split()
