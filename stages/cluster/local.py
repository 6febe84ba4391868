"""A Ray cluster on this machine: a Ray node for every machine of a topology, with the devices the topology says it has.

Ray's ``Node`` is used directly, not ``ray start`` (three seconds and a process a node) nor ``ray.cluster_utils.Cluster``
(installs its own SIGTERM handler, leaves its address where other programs of this user would find and join it).
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import RunnerUnavailable, StageTimeout
from artifacts.topology import Machine, Topology
from artifacts.units import MIB
from stages.cluster import processes
from stages.cluster.names import MACHINE_AMOUNT, device_resource, machine_resource
from stages.cluster.scratch import keep_logs, scratch_folder
from stages.cluster.signals import StopSignal

LOOPBACK = "127.0.0.1"
_OBJECT_STORE_BYTES = 128 * MIB
# Ray counts CPUs by what is declared; here they only admit actors, all of which share this machine's cores.
_DECLARED_CPUS = 64
_DECLARED_CPUS_PER_DEVICE = 16
# Fake GPUs: Ray must not clear CUDA_VISIBLE_DEVICES of workers that ask for none. No usage reports leave this machine.
_ENVIRONMENT = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


@dataclass(frozen=True)
class LocalNodes:
    """The running nodes: GCS address, and Ray's node id of every machine."""

    address: str
    node_ids: dict[str, str]


def declared_resources(topology: Topology, machine: Machine) -> dict[str, float]:
    """What the Ray node that stands for ``machine`` declares."""
    devices = [d for d in topology.devices if d.machine == machine.name]
    cpus = max(_DECLARED_CPUS, _DECLARED_CPUS_PER_DEVICE * len(devices))
    # Only CPU shares are called by name: which GPU a bundle holds is Ray's choice, so a name for it would prove nothing.
    named = {device_resource(d.id): 1.0 for d in devices if d.vendor == "cpu"}
    return {"CPU": cpus, "GPU": len(devices), machine_resource(machine.name): MACHINE_AMOUNT, **named}


@contextmanager
def local_nodes(topology: Topology, *, env: Mapping[str, str], workdir: Path, deadline_s: float, stop: StopSignal) -> Iterator[LocalNodes]:
    """Start the nodes; stop them, and every process they started, at the end.

    After an error Ray's logs are kept in ``workdir/ray-logs``. If this process is killed, the kernel kills the nodes, and
    Ray's agents end by themselves within a minute; their folder is swept by the next start.
    """
    token = secrets.token_hex(8)
    until = time.monotonic() + deadline_s
    nodes: list[Any] = []
    with scratch_folder() as scratch:
        try:
            node_ids = {}
            for machine in topology.machines:
                if time.monotonic() > until:
                    raise StageTimeout(f"{len(nodes)} of {len(topology.machines)} local Ray nodes started within {deadline_s:g} s; "
                                       f"next was {machine.name}", fix="give a longer start deadline, or stop what else loads this machine")
                with _environment({**_ENVIRONMENT, **env, processes.MARK: token}):
                    nodes.append(_start(declared_resources(topology, machine), head=nodes[0] if nodes else None, scratch=scratch))
                node_ids[machine.name] = nodes[-1].node_id
            yield LocalNodes(address=nodes[0].gcs_address, node_ids=node_ids)
        except BaseException:
            keep_logs(scratch, workdir)
            raise
        finally:
            with stop.held():
                _stop(nodes, token)


def _start(declared: dict[str, float], *, head: Any, scratch: Path) -> Any:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    custom = {k: v for k, v in declared.items() if k not in ("CPU", "GPU")}
    options: dict[str, Any] = dict(
        num_cpus=int(declared["CPU"]), num_gpus=int(declared["GPU"]), resources=custom, object_store_memory=_OBJECT_STORE_BYTES,
        node_ip_address=LOOPBACK, temp_dir=str(scratch), include_dashboard=False, include_log_monitor=False, no_monitor=True,
        min_worker_port=0, max_worker_port=0, node_manager_port=0, dashboard_agent_listen_port=None,
    )
    if head is None:
        # Without this Ray starts a worker for each declared CPU as soon as a driver connects.
        options["_system_config"] = {"prestart_worker_first_driver": False}
    else:
        options |= {"gcs_address": head.gcs_address, "redis_address": head.redis_address}
    try:
        # spawn_reaper binds the node's processes to this one in the kernel; shutdown_at_exit would take over SIGTERM.
        return Node(RayParams(**options), head=head is None, shutdown_at_exit=False, spawn_reaper=True)
    except Exception as error:
        raise RunnerUnavailable(f"Ray cannot start a node on this machine: {type(error).__name__}: {error}",
                                fix="see ray-logs in the stage's scratch folder") from error


def _stop(nodes: list[Any], token: str) -> None:
    pids = [info.process.pid for node in nodes for infos in node.all_processes.values() for info in infos]
    # Also a node whose start was interrupted: it is not in our list, but carries the mark.
    ours = processes.family([*pids, *(p.pid for p in processes.marked(token))])
    for node in reversed(nodes):
        node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
    processes.end({p.pid: p for p in [*ours, *processes.marked(token)]}.values(), grace_s=2.0)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes started inside the block; this process's own are put back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
