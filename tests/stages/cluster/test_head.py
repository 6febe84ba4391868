"""The head node's port is closed: the stage is interrupted, and can say which machine is gone."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from artifacts.errors import StageCrashed
from artifacts.invocation import Outcome, StageRequest, parse_event
from stages.cluster import head
from stages.cluster.head import HeadWatch
from stages.cluster.names import MACHINE

ROOT = Path(__file__).parents[3]
NODES: list[dict[str, Any]] = [{"Alive": True, "Resources": {f"{MACHINE}m1": 1}},
                               {"Alive": True, "Resources": {f"{MACHINE}m0": 1, "node:__internal_head__": 1}}]


def test_a_port_that_is_closed_interrupts_the_stage_with_the_machine_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "PERIOD_S", 0.05)
    monkeypatch.setattr(head, "PATIENCE_S", 0.05)
    told = threading.Event()

    def note(signum: int, frame: FrameType | None) -> None:
        told.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        with socket.create_server(("127.0.0.1", 0)) as gcs:
            address = f"127.0.0.1:{gcs.getsockname()[1]}"
            watch = HeadWatch(address, NODES)
            watch.start()
            assert not told.wait(0.5) and not watch.is_gone()
        assert told.wait(120) and watch.gone
        watch.join(120)
        assert not watch.is_alive(), "once is enough"
    finally:
        signal.signal(signal.SIGTERM, before)
    assert str(watch.lost()).startswith(f"the head node of the Ray cluster (machine m0, {address}) is gone")


def test_a_watch_that_is_over_interrupts_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gcs:
        watch = HeadWatch(f"127.0.0.1:{gcs.getsockname()[1]}", NODES)
        watch.start()
        watch.end()
        watch.join(120)
    assert not watch.is_alive() and not watch.gone


HELD = """
import ctypes, socket, sys
from stages.cluster import head
from stages.contract import main

head.PERIOD_S = head.PATIENCE_S = 0.05
nodes = [{"Alive": True, "Resources": {"machine:m0": 1, "node:__internal_head__": 1}}]

def run(context):
    with socket.create_server(("127.0.0.1", 0)) as gcs:
        head.HeadWatch(f"127.0.0.1:{gcs.getsockname()[1]}", nodes).start()
    lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(lock)
    libc.pthread_mutex_lock(lock)  # no signal ends this wait

main("profile", run)
"""


def test_a_stage_that_a_library_holds_is_ended_with_the_machine_s_name(tmp_path: Path) -> None:
    request = StageRequest(stage="profile", store=f"{(tmp_path / 'store').as_uri()}", pipeline="test", version="v1",
                           workdir=str(tmp_path / "work"))
    (tmp_path / "request.json").write_text(request.to_json(), encoding="utf-8")
    ended = subprocess.run([sys.executable, "-c", HELD, "--request", str(tmp_path / "request.json")], cwd=ROOT, text=True,
                           capture_output=True, timeout=300)
    (outcome,) = [parse_event(line) for line in ended.stdout.splitlines()]
    assert isinstance(outcome, Outcome) and ended.returncode == StageCrashed.exit_status
    assert (outcome.kind, outcome.details) == ("StageCrashed", {"machines": ["m0"]})
    assert outcome.message.startswith("the head node of the Ray cluster (machine m0, 127.0.0.1:")
