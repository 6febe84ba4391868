"""A real stage in its real image, started by the docker runner, with a real store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import docker
import pytest

from artifacts.invocation import Log, Progress, StageRequest
from artifacts.store import open_store
from artifacts.topology import Topology
from flows.launch.docker_runner import DockerRunner
from flows.launch.docker_settings import DockerSettings
from flows.services.s3 import S3Server

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = DockerSettings(image_prefix="hetrl-test/stage-", image_tag="t", memory="2g")
pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def runner(engine: docker.DockerClient) -> Iterator[DockerRunner]:
    variables = {**os.environ, "HETRL_IMAGE_PREFIX": SETTINGS.image_prefix, "HETRL_IMAGE_TAG": SETTINGS.image_tag}
    built = subprocess.run([sys.executable, str(ROOT / "containers" / "build.py"), "profile"], env=variables, capture_output=True, text=True,
                           check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    yield DockerRunner(settings=SETTINGS)
    engine.images.remove(SETTINGS.image("profile"), force=True)


def profile(runner: DockerRunner, store: str, workdir: Path) -> tuple[Topology, list[Log | Progress]]:
    events: list[Log | Progress] = []
    request = StageRequest(stage="profile", store=store, pipeline="p", version="v1", run_id="stage-test", runner="docker",
                           code_digest=runner.code_digest("profile"), image_digest=runner.image_digest("profile"), workdir=str(workdir),
                           parameters={"cluster": {"kind": "local"}, "devices": 1, "seconds": 0.5})
    result = runner.run(request, on_event=events.append, timeout_s=600)  # type: ignore[arg-type]
    assert result.returncode == 0 and result.outcome.version == "v1"
    made = open_store(store, pipeline="p")
    (ref,) = made.history("profile")
    manifest = made.manifest(ref)
    assert manifest.producer.image_digest == request.image_digest and manifest.producer.runner == "docker"
    return made.read(ref, Topology), events


def test_profile_writes_to_an_s3_store_as_nobody(runner: DockerRunner, s3_server: S3Server, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=s3_server.endpoint).create_bucket(Bucket="containers")
    topology, events = profile(runner, "s3://containers/runs", tmp_path / "work")
    assert len(topology.devices) == 1 and any(isinstance(e, Progress) for e in events)
    if os.geteuid() == 0:
        assert (tmp_path / "work").stat().st_uid == 65534


def test_profile_writes_to_a_local_store(runner: DockerRunner, tmp_path: Path) -> None:
    topology, _ = profile(runner, f"file://{tmp_path}/store", tmp_path / "work")
    assert len(topology.devices) == 1
