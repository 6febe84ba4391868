"""The head node's port is closed: the stage is interrupted, and can say which machine is gone."""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType
from typing import Any

import pytest

from stages.cluster import head
from stages.cluster.head import HeadWatch
from stages.cluster.names import MACHINE

NODES: list[dict[str, Any]] = [{"Alive": True, "Resources": {f"{MACHINE}m1": 1}},
                               {"Alive": True, "Resources": {f"{MACHINE}m0": 1, "node:__internal_head__": 1}}]


def test_a_port_that_is_closed_interrupts_the_stage_with_the_machine_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "PERIOD_S", 0.05)
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
