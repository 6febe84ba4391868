"""Whether the machines of a training are still there. verl polls for sequences that a lost machine will never deliver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from artifacts.errors import StageCrashed
from stages.cluster.live import lost_machines
from stages.cluster.watch import PATIENCE_S, Watch

PERIOD_S, MISSES = 5.0, 4
"""So many misses in a row, each of up to 3 s a machine: 20 to 35 s. Mostly Ray ends a call with an error before."""


class MachineWatch(Watch):
    """Asks Ray, and the port of each machine's Ray node. ``node_ids``: machine → Ray's node id."""

    def __init__(self, node_ids: Mapping[str, str]) -> None:
        super().__init__("machine-watch", period_s=PERIOD_S, misses=MISSES, patience_s=PATIENCE_S)
        self._node_ids = node_ids
        self._lost: Sequence[str] = ()

    def lost(self) -> StageCrashed:
        return StageCrashed(f"machine {', '.join(self._lost)} was lost in the middle of the training: its Ray node is gone",
                            fix="bring it back, or plan without it, and run again: training goes on from its last checkpoint",
                            details={"machines": list(self._lost)})

    def answers(self) -> bool:
        lost = lost_machines(self._node_ids)
        self._lost = lost or self._lost
        return not lost
