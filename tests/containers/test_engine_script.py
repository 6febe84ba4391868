"""The script that starts an engine where none runs, with a private one: its own socket, data, state and network namespace.

Without the last, two engines would quarrel about the bridge docker0 (--bridge none even removes it).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.docker, pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("dockerd"), reason="needs root and dockerd")]


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="he"))  # a socket's path is short
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def script(place: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    options = (f"--host unix://{place}/s --data-root {place}/data --exec-root {place}/exec --pidfile {place}/pid "
               "--bridge none --iptables=false")
    env = {**os.environ, "HETRL_ENGINE_STATE": str(place / "state"), "DOCKER_HOST": f"unix://{place}/s", "HETRL_DOCKERD_ARGS": options,
           **variables}
    return subprocess.run(["unshare", "--net", "bash", str(ROOT / "containers" / "engine.sh"), command], env=env, capture_output=True, text=True,
                          check=False, timeout=300)


def test_it_starts_one_and_stops_that_one(place: Path) -> None:
    assert script(place, "status").returncode == 1
    try:
        started = script(place, "start")
        assert started.returncode == 0 and "started (pid" in started.stdout, started.stderr
        again = script(place, "start")
        assert "answers already" in again.stdout
        assert script(place, "status").returncode == 0
    finally:
        stopped = script(place, "stop")
    assert "engine: stopped (pid" in stopped.stdout
    assert script(place, "status").returncode == 1
    assert "none that we started" in script(place, "stop").stdout


def test_it_does_not_stop_what_it_did_not_start(place: Path) -> None:
    (place / "state").mkdir()
    other = subprocess.Popen(["sleep", "60"])
    try:
        (place / "state" / "dockerd.pid").write_text(f"{other.pid} 1\n")  # the pid now belongs to another process
        assert "none that we started" in script(place, "stop").stdout
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_an_engine_that_cannot_start_shows_its_last_lines(place: Path) -> None:
    failed = script(place, "start", HETRL_DOCKERD_ARGS="--no-such-option")
    assert failed.returncode == 1 and "does not come up" in failed.stderr and "no-such-option" in failed.stderr


def test_a_docker_host_without_an_engine_is_not_replaced(place: Path) -> None:
    refused = script(place, "start", HETRL_DOCKERD_ARGS="")
    assert refused.returncode == 1 and "DOCKER_HOST is set" in refused.stderr
