"""A real Ray cluster for the tests: a node a machine, each at a loopback address of its own, some with a fault."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from stages.cluster.scratch import scratch_folder

ROOT = Path(__file__).parents[3]
FAULTS = Path(__file__).parent / "faults"


class RayFleet:
    """``add`` machines, ``kill`` one; ``address`` is the cluster's. CPU devices are declared as ``<machine>-<index>``."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._nodes: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return str(next(iter(self._nodes.values())).gcs_address)

    def add(self, name: str, *, devices: int = 2, labels: dict[str, str] | None = None, fault: str = "", resources: dict[str, float] | None = None,
            cpus: int = 4) -> None:
        from ray._private.node import Node
        from ray._private.parameter import RayParams

        path = os.pathsep.join([*([str(FAULTS)] if fault else []), str(ROOT)])
        declared = {f"machine:{name}": 1.0, **{f"device:{name}-{i}": 1.0 for i in range(devices)}} if resources is None else resources
        head = next(iter(self._nodes.values()), None)
        options: dict[str, Any] = dict(
            num_cpus=cpus, num_gpus=0, resources=declared, labels=labels, node_ip_address=f"127.0.0.{len(self._nodes) + 1}", temp_dir=str(self._scratch),
            object_store_memory=100 << 20, include_dashboard=False, include_log_monitor=False, no_monitor=True, min_worker_port=0, max_worker_port=0,
            node_manager_port=0, dashboard_agent_listen_port=None,
            env_vars={**os.environ, "PYTHONPATH": path, "HETRL_TEST_FAULT": fault, "RAY_USAGE_STATS_ENABLED": "0"})
        if head is None:
            options["_system_config"] = {"prestart_worker_first_driver": False}
        else:
            options |= {"gcs_address": head.gcs_address, "redis_address": head.redis_address}
        self._nodes[name] = Node(RayParams(**options), head=head is None, shutdown_at_exit=False, spawn_reaper=True)

    def kill(self, name: str) -> None:
        """As when the power fails: no goodbye to anyone."""
        self._nodes[name].kill_raylet(check_alive=False)

    def close(self) -> None:
        from ray.experimental import internal_kv

        below = [p for server in self._servers() for p in (server, *server.children(recursive=True))]
        for node in reversed(self._nodes.values()):
            node.kill_all_processes(check_alive=False, allow_graceful=False)
        _, alive = psutil.wait_procs(below, timeout=5)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=5)
        # Starting a head node leaves a client of its GCS for the whole process: the next call through it (importing ray.util.state
        # makes one) would wait a minute for a GCS that is gone, and then end this process with status 1.
        internal_kv._internal_kv_reset()

    def _servers(self) -> list[psutil.Process]:
        found = []
        for node in self._nodes.values():
            for started in node.all_processes.values():
                for info in started:
                    with suppress(psutil.NoSuchProcess):
                        found.append(psutil.Process(info.process.pid))
        return found


@contextmanager
def ray_fleet(*names: str, **fields: Any) -> Iterator[RayFleet]:
    with scratch_folder() as scratch:
        fleet = RayFleet(scratch)
        try:
            for name in names:
                fleet.add(name, **fields)
            yield fleet
        finally:
            fleet.close()
