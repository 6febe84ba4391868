"""Open the cluster a topology describes, with this process as Ray's driver, for the length of a ``with`` block."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import InputError, RunnerUnavailable, StageTimeout
from artifacts.topology import Topology
from stages.cluster import live
from stages.cluster.head import HeadWatch
from stages.cluster.local import local_nodes
from stages.cluster.names import LOOPBACK
from stages.cluster.signals import StopSignal, stop_signal
from stages.cluster.watch import watched

_LEAVE_S = 3.0


@dataclass(frozen=True)
class Cluster:
    """A cluster this process is connected to.

    ``node_ids``: machine → Ray's node id; ``resources_by_machine``: what that node declares to Ray; ``env``: the
    environment variables every worker of this driver gets.
    """

    topology: Topology
    address: str
    node_ids: dict[str, str]
    resources_by_machine: dict[str, dict[str, float]]
    env: dict[str, str] = field(default_factory=dict)


@contextmanager
def open_cluster(topology: Topology, *, address: str = "", env: Mapping[str, str] | None = None, workdir: Path,
                 deadline_s: float = 120, log_to_driver: bool = False) -> Iterator[Cluster]:
    """Start (kind ``local``) or join (``ray``, ``lab``) the cluster; leave nothing of ours behind, however the block ends.

    ``address`` overrides the topology's. ``env`` reaches every Ray worker. SIGTERM inside the block raises
    ``KeyboardInterrupt``. Only one cluster at a time is open in a process (Ray has one driver a process).

    Raises:
        StageCrashed: the head node was lost while the block ran.
        InputError: the topology is an inventory; ``RunnerUnavailable``: Ray is not installed or does not start;
        StageTimeout: not there within ``deadline_s``; ``ClusterChanged``: a machine has no living node.
    """
    cluster = topology.cluster
    refuse_inventory(topology)
    try:
        import ray
    except ImportError:
        raise RunnerUnavailable("Ray is not installed here", fix="pip install 'hetrl[engine-cpu]' (or engine-cuda)") from None
    if ray.is_initialized():
        raise RuntimeError("this process is connected to a Ray cluster already")

    variables = dict(env or {})
    with stop_signal() as stop:
        if cluster.kind == "local" and not address:
            with (local_nodes(topology, env=variables, workdir=workdir, deadline_s=deadline_s, stop=stop) as nodes,
                  _connected(nodes.address, env=variables, stop=stop, loopback=True, log_to_driver=log_to_driver)):
                yield _describe(topology, nodes.address, variables, deadline_s=min(deadline_s, 30.0))
        else:
            where = live.gcs_address(address or cluster.address or "auto")
            live.reach(where, deadline_s=deadline_s)
            with _connected(where, env=variables, stop=stop, loopback=False, log_to_driver=log_to_driver):
                yield _describe(topology, where, variables, deadline_s=0)


def refuse_inventory(topology: Topology) -> None:
    """Raise ``InputError`` for a cluster that is only described."""
    if topology.cluster.kind == "inventory":
        raise InputError(f"cluster {topology.cluster.name} is described, not at hand: it can be planned for, not deployed on",
                         fix="deploy on --cluster local or a Ray cluster (ray://host:6379), or train on the simulator")


@contextmanager
def _connected(address: str, *, env: dict[str, str], stop: StopSignal, loopback: bool, log_to_driver: bool) -> Iterator[None]:
    import ray
    from ray._private import ray_constants

    kept, watch = ray_constants.ENABLE_RAY_CLUSTER, None
    options: dict[str, Any] = {"_node_ip_address": LOOPBACK} if loopback else {}
    try:
        # Ray turns a loopback address into the machine's own, where our nodes do not listen, unless told it is single-host.
        ray_constants.ENABLE_RAY_CLUSTER = kept and not loopback
        try:
            ray.init(address=address, runtime_env={"env_vars": env}, log_to_driver=log_to_driver, configure_logging=False, **options)
        except ConnectionError as error:
            raise RunnerUnavailable(f"cannot connect to the Ray cluster at {address}: {error}",
                                    fix="check the address with `ray status`") from None
        except SystemExit as exit_:  # Ray's own handler of SIGTERM, until ours is back
            raise KeyboardInterrupt from exit_
        stop.claim()
        watch = HeadWatch(ray.get_runtime_context().gcs_address, ray.nodes())
        with watched(watch):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = kept
        with stop.held():
            _disconnect(patient=watch is None or not watch.gone)


def _disconnect(*, patient: bool) -> None:
    """Leave the cluster. Without a head node that takes up to a minute, at whose end Ray ends the process: then not waited for."""
    import ray

    if patient:
        ray.shutdown()
        return
    atexit.unregister(ray.shutdown)
    leaving = threading.Thread(target=ray.shutdown, name="ray-shutdown", daemon=True)
    leaving.start()
    leaving.join(timeout=_LEAVE_S)


def _describe(topology: Topology, address: str, env: dict[str, str], *, deadline_s: float) -> Cluster:
    """The cluster as Ray sees it; a node that has just been started may take a moment to be listed."""
    import ray

    until = time.monotonic() + deadline_s
    while True:
        nodes = ray.nodes()
        if sum(n["Alive"] for n in nodes) >= len(topology.machines) or time.monotonic() >= until:
            break
        time.sleep(0.1)
    if deadline_s and sum(n["Alive"] for n in nodes) < len(topology.machines):
        raise StageTimeout(f"{sum(n['Alive'] for n in nodes)} of {len(topology.machines)} Ray nodes were alive after {deadline_s:g} s",
                           fix="see ray-logs in the stage's scratch folder")
    found = live.machine_nodes(topology, nodes)
    return Cluster(topology=topology, address=address, node_ids={m: n["NodeID"] for m, n in found.items()},
                   resources_by_machine={m: dict(n["Resources"]) for m, n in found.items()}, env=env)
