"""Runs that come and go leave nothing; ``python -m tests.benchmarks.container_churn`` does it a thousand times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from artifacts.invocation import StageRequest
from flows.launch.docker_runner import DockerRunner
from tests.flows.launch.churn import churn


@pytest.mark.docker
def test_runs_leave_no_container_network_volume_or_file(runner: DockerRunner, engine: docker.DockerClient, far: Callable[..., StageRequest],
                                                        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    done = churn(runner, engine, far("good"), 5, bare_every=5)
    assert len(done.run_s) == 5 and {what: names for what, names in done.left.items() if what != "volumes"} == {
        "containers": [], "networks": [], "temporary files": [], "containers of ours": []}
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["good.log", "request.json"], "a run's folder holds its request and its log"
