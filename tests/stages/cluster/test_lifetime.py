"""Opening and closing: other clusters, errors, signals; and nothing of ours left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from artifacts.errors import ClusterChanged, InputError, RunnerUnavailable, StageTimeout
from stages.cluster import open_cluster, pinned_groups, probe, scratch
from stages.cluster.live import gcs_address, machine_nodes, reach
from tests.stages.cluster.fleets import fleet, ray_processes

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.engine

# Opens a cluster and waits inside Ray's own compiled wait, the hardest place to be interrupted.
HOLD = """
import sys, time
from pathlib import Path
from stages.cluster import open_cluster
from stages.contract import _stop
from tests.stages.cluster.fleets import fleet
import signal
signal.signal(signal.SIGTERM, _stop)
try:
    with open_cluster(fleet({"a": 1}), workdir=Path(sys.argv[1])) as cluster:
        import ray
        print("open", flush=True)
        ray.get(ray.remote(num_cpus=0)(lambda: time.sleep(3600)).remote())
except BaseException as stop:
    print(f"ended by {type(stop).__name__}: {stop}".removesuffix(": "), flush=True)
"""


def hold(tmp_path: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """The process, once its cluster is open, and all of Ray below it."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    return process, [psutil.Process(p) for p in ray_processes(process.pid)]


def folders_of(processes: list[psutil.Process]) -> list[Path]:
    """Ray's folder, as its servers' command lines name it."""
    words = " ".join(" ".join(p.cmdline()) for p in processes)
    return [f for f in Path("/tmp").glob(scratch.PREFIX + "*") if str(f) in words]


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=120)
    assert [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def test_sigterm_ends_the_cluster(tmp_path: Path) -> None:
    process, ours = hold(tmp_path)
    assert len(ours) >= 4  # gcs, raylet, its two agents
    folders = folders_of(ours)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=200)
    assert out == "ended by KeyboardInterrupt\n", "and not because the task below was done"
    assert_gone(ours)
    assert list((tmp_path / "ray-logs").iterdir())  # kept for whoever looks into it
    assert not folders[0].exists()


def test_kill_leaves_nothing(tmp_path: Path) -> None:
    process, ours = hold(tmp_path)
    left = folders_of(ours)
    assert len(left) == 1
    process.kill()
    process.wait()
    assert_gone(ours)
    until = time.monotonic() + 120
    while left[0].exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not left[0].exists()


def test_a_folder_nobody_holds_is_swept() -> None:
    with scratch.scratch_folder() as used:
        stale = used.with_name(used.name + "-stale")
        (stale / "session").mkdir(parents=True)
        (stale / "in-use").touch()
        with scratch.scratch_folder() as other:
            assert not stale.exists() and used.exists() and other.exists()
    assert not used.exists() and not other.exists()


def test_a_running_cluster_is_joined_and_left_running(tmp_path: Path) -> None:
    """One Ray cluster, reached as ``ray`` from a second process; machines found by resource. It ends by an error of ours."""
    there = fleet({"a": 2, "b": 1})
    join = """
import sys
from pathlib import Path
from stages.cluster import open_cluster, pinned_groups, probe
from tests.stages.cluster.fleets import fleet
from artifacts.errors import ClusterChanged
import ray._private.ray_constants as constants
constants.ENABLE_RAY_CLUSTER = False  # the cluster of this test listens on loopback only
with open_cluster(fleet({"b": 1, "a": 2}, kind="ray"), address="ray://" + sys.argv[1], workdir=Path(".")) as cluster:
    print([f.device for f in probe(cluster, pinned_groups(cluster, ["b-0", "a-1"], name="x"), deadline_s=120)])
try:
    with open_cluster(fleet({"a": 2, "z": 1}, kind="ray"), address=sys.argv[1], workdir=Path(".")):
        pass
except ClusterChanged as error:
    print(error.message)
"""
    with pytest.raises(ZeroDivisionError), open_cluster(there, workdir=tmp_path) as cluster:
        ours = [psutil.Process(p) for p in ray_processes(os.getpid())]
        done = subprocess.run([sys.executable, "-c", join, cluster.address], capture_output=True, text=True, timeout=300, cwd=ROOT,
                              env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
        lines = done.stdout.splitlines()
        assert lines[:1] == ["['b-0', 'a-1']"], done.stderr
        assert lines[1].startswith("no living Ray node stands for z; living nodes: a (2 GPU, 64 CPU), b (1 GPU, 64 CPU)")
        groups = pinned_groups(cluster, ["b-0"], name="still-there", deadline_s=120)
        assert probe(cluster, groups, deadline_s=120)[0].machine == "b"
        raise ZeroDivisionError
    assert_gone(ours)


def test_an_inventory_cannot_be_deployed_on(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="described, not at hand") as caught, open_cluster(fleet({"a": 1}, kind="inventory"), workdir=tmp_path):
        pass
    assert "simulator" in caught.value.fix


def test_nobody_at_the_address() -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, never answers
    with silent, pytest.raises(StageTimeout, match=r"no Ray cluster answered at 127\.0\.0\.1:\d+ within 2 s"):
        reach(f"127.0.0.1:{silent.getsockname()[1]}", deadline_s=2)
    with pytest.raises((StageTimeout, RunnerUnavailable)):
        reach("127.0.0.1:9", deadline_s=2)


def test_addresses() -> None:
    assert gcs_address("ray://head:6379") == "head:6379" == gcs_address("head:6379")
    assert gcs_address("ray:auto") == "auto" == gcs_address("auto")
    for bad in ("head", "ray://", "head:port"):
        with pytest.raises(InputError, match="not the address of a Ray cluster"):
            gcs_address(bad)


def test_machines_are_found_by_node_id_then_resource_then_address() -> None:
    def node(node_id: str, address: str, *, alive: bool = True, **resources: float) -> dict[str, object]:
        return {"NodeID": node_id, "NodeManagerAddress": address, "Alive": alive, "Resources": {k.replace("_", ":"): v for k, v in resources.items()}}

    nodes = [node("n1", "10.0.0.1"), node("n2", "10.0.0.2", machine_b=1.0), node("n3", "10.0.0.3"), node("n4", "10.0.0.4", alive=False)]
    topology = fleet({"a": 1, "b": 1, "c": 1})
    machines = [m.model_copy(update=u) for m, u in zip(topology.machines, [{"ray_node_id": "n1"}, {}, {"address": "10.0.0.3"}], strict=True)]
    named = topology.model_copy(update={"machines": machines})
    assert {m: n["NodeID"] for m, n in machine_nodes(named, nodes).items()} == {"a": "n1", "b": "n2", "c": "n3"}
    dead = named.model_copy(update={"machines": [m.model_copy(update={"ray_node_id": "", "address": "10.0.0.4"}) for m in machines]})
    with pytest.raises(ClusterChanged, match=r"no living Ray node stands for a \(address 10\.0\.0\.4\), c \(address 10\.0\.0\.4\)"):
        machine_nodes(dead, nodes)
