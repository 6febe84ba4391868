"""Whether the cluster's head node still answers. Ray ends a driver that lost it after a minute, and says so only in its own words."""

from __future__ import annotations

import socket
from typing import Any

from artifacts.errors import StageCrashed
from stages.cluster.names import MACHINE
from stages.cluster.watch import PATIENCE_S, Watch

PERIOD_S, TIMEOUT_S, MISSES = 3.0, 3.0, 3
"""Asked so often, waited for so long; so many misses in a row make it gone: after 9 to 18 s, before Ray's 60."""


class HeadWatch(Watch):
    """Asks the port of the head node's GCS."""

    def __init__(self, address: str, nodes: list[dict[str, Any]]) -> None:
        super().__init__("head-watch", period_s=PERIOD_S, misses=MISSES, patience_s=PATIENCE_S)
        host, _, port = address.rpartition(":")
        self._address, self._where = address, (host, int(port))
        self._machine = next((name for node in nodes if node["Alive"] for name in _machine(node)), "")

    def lost(self) -> StageCrashed:
        name = f"machine {self._machine}, " if self._machine else ""
        return StageCrashed(f"the head node of the Ray cluster ({name}{self._address}) is gone",
                            fix="start the cluster again, or plan for another, and run again: training goes on from its last checkpoint",
                            details={"machines": [self._machine] if self._machine else []})

    def answers(self) -> bool:
        try:
            socket.create_connection(self._where, timeout=TIMEOUT_S).close()
        except OSError:
            return False
        return True


def _machine(node: dict[str, Any]) -> list[str]:
    """The machine that the head's Ray node stands for, by the resource it declares; none for other nodes."""
    resources = node["Resources"]
    return [name.removeprefix(MACHINE) for name in resources if name.startswith(MACHINE)] if "node:__internal_head__" in resources else []
