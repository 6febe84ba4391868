"""Fixtures of the launch tests: a checkout of tiny stages, requests for them, and their events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from artifacts.errors import RunnerUnavailable
from artifacts.invocation import StageRequest
from flows.launch import follow
from flows.launch.docker_runner import DockerRunner
from flows.launch.engine import connect
from tests.flows.launch.docker_images import SETTINGS, build_image, ours
from tests.flows.launch.tiny_stages import Events, write_stages


@pytest.fixture(scope="session")
def stage_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stages(tmp_path_factory.mktemp("code"))


@pytest.fixture
def make_request(tmp_path: Path) -> Callable[..., StageRequest]:
    def make(stage: str, **fields: Any) -> StageRequest:
        defaults = {"store": f"file://{tmp_path}/store", "pipeline": "p", "version": "v1", "run_id": "run-1",
                    "workdir": str(tmp_path / "work")}
        return StageRequest(stage=stage, **{**defaults, **fields})
    return make


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def late_when_ready(events: Events, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Collects events; once the stage is ready, an hour has passed on the clock of deadlines, however long it took to start."""
    clock = SimpleNamespace(ahead_s=0.0, monotonic=lambda: time.monotonic() + clock.ahead_s)
    monkeypatch.setattr(follow, "time", clock)

    def on_event(event: Any) -> None:
        events(event)
        if event.message == "ready" or event.message.startswith("pids"):
            clock.ahead_s = 3600.0

    return on_event


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    try:
        return connect()
    except RunnerUnavailable as error:
        pytest.skip(error.line)


@pytest.fixture(scope="session")
def images(engine: docker.DockerClient, stage_root: Path) -> Iterator[str]:
    """One image under the name of every tiny stage; its id."""
    image = build_image(engine, stage_root)
    yield image
    engine.images.remove(image, force=True)


@pytest.fixture
def runner(images: str, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerRunner]:
    for name in [n for n in os.environ if n.startswith(("AWS_", "HETRL_"))]:
        monkeypatch.delenv(name)
    yield DockerRunner(settings=SETTINGS, grace_s=60, exit_grace_s=60)
    assert not ours(engine), "a test left containers behind"


@pytest.fixture
def hasty(runner: DockerRunner) -> DockerRunner:
    """For stages that do not end by themselves."""
    return DockerRunner(settings=SETTINGS, grace_s=1.0, exit_grace_s=0.7)


@pytest.fixture
def far(make_request: Callable[..., StageRequest]) -> Callable[..., StageRequest]:
    """Requests for a store that is not a local folder, so that nothing of it is mounted."""
    return lambda stage, **fields: make_request(stage, **{"store": "s3://bucket/prefix", **fields})
