"""A machine whose Ray node dies while the stage waits for something it will never get: the stage ends with the machine's name."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Timer

import psutil
import pytest

from artifacts.errors import StageCrashed
from stages.cluster import Cluster, machines, open_cluster
from stages.cluster.machines import MachineWatch
from stages.cluster.watch import watched
from tests.stages.cluster.fleets import fleet

pytestmark = pytest.mark.engine
FOREVER_S = 300


def kill_node(cluster: Cluster, machine: str) -> None:
    """As when the power fails: no goodbye to anyone."""
    import ray

    (node,) = [n for n in ray.nodes() if n["NodeID"] == cluster.node_ids[machine]]
    for process in psutil.Process().children(recursive=True):
        if process.name() == "raylet" and any(c.laddr.port == node["NodeManagerPort"] for c in process.net_connections() if c.laddr):
            process.kill()


def test_a_stage_that_polls_is_ended_when_a_machine_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(machines, "PERIOD_S", 0.1)
    with (pytest.raises(StageCrashed, match="machine b was lost in the middle of the training: its Ray node is gone") as ended,
          open_cluster(fleet({"a": 1, "b": 1}), workdir=tmp_path) as cluster, watched(MachineWatch(cluster.node_ids))):
        killing = Timer(1.0, kill_node, [cluster, "b"])
        killing.start()
        for _ in range(FOREVER_S * 10):
            time.sleep(0.1)
    killing.join()
    assert ended.value.details == {"machines": ["b"]} and "last checkpoint" in str(ended.value.fix)


def test_an_error_with_all_machines_there_stays_what_it_is(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with (pytest.raises(ValueError, match="its own"), open_cluster(fleet({"a": 1}), workdir=tmp_path) as cluster,
          watched(MachineWatch(cluster.node_ids))):
        raise ValueError("its own")
