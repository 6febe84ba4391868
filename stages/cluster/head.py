"""Whether the cluster's head node still answers. Ray ends a driver that lost it after a minute, and says so only in its own words."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import Any

from artifacts.errors import StageCrashed
from stages.cluster.names import MACHINE
from stages.contract import end_stage

PERIOD_S, TIMEOUT_S, MISSES = 3.0, 3.0, 3
"""Asked so often, waited for so long; so many misses in a row make it gone: after 9 to 18 s, before Ray's 60."""
PATIENCE_S = 15.0
"""The stage has so long from then on to clean up and say so itself."""


class HeadWatch(threading.Thread):
    """Asks the port of the head node's GCS. When it is gone, the stage is interrupted as by SIGTERM: whatever it waits for in Ray would not
    end before Ray ends the process. Where Ray keeps the main thread even so, or cleaning up takes long, the stage is ended from here."""

    def __init__(self, address: str, nodes: list[dict[str, Any]]) -> None:
        super().__init__(name="head-watch", daemon=True)
        host, _, port = address.rpartition(":")
        self._address, self._where = address, (host, int(port))
        self._machine = next((name for node in nodes if node["Alive"] for name in _machine(node)), "")
        self._ended = threading.Event()
        self.gone = False

    def run(self) -> None:
        misses = 0
        while not self._ended.wait(PERIOD_S):
            misses = 0 if self._answers() else misses + 1
            if misses == MISSES:
                self.gone = True
                os.kill(os.getpid(), signal.SIGTERM)
                break
        if self.gone:
            time.sleep(PATIENCE_S)
            end_stage(self.lost())

    def end(self) -> None:
        self._ended.set()

    def is_gone(self) -> bool:
        """What has failed may have failed for this, before enough misses were counted."""
        self.gone = self.gone or not self._answers()
        return self.gone

    def lost(self) -> StageCrashed:
        name = f"machine {self._machine}, " if self._machine else ""
        return StageCrashed(f"the head node of the Ray cluster ({name}{self._address}) is gone",
                            fix="start the cluster again, or plan for another, and run again: training goes on from its last checkpoint",
                            details={"machines": [self._machine] if self._machine else []})

    def _answers(self) -> bool:
        try:
            socket.create_connection(self._where, timeout=TIMEOUT_S).close()
        except OSError:
            return False
        return True


def _machine(node: dict[str, Any]) -> list[str]:
    """The machine that the head's Ray node stands for, by the resource it declares; none for other nodes."""
    resources = node["Resources"]
    return [name.removeprefix(MACHINE) for name in resources if name.startswith(MACHINE)] if "node:__internal_head__" in resources else []
