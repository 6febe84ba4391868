"""A Ray cluster that somebody else runs: reach it within a deadline, and find the topology's machines among its nodes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from artifacts.errors import ClusterChanged, InputError, RunnerUnavailable, StageTimeout
from artifacts.topology import Machine, Topology
from stages.cluster.names import MACHINE, machine_resource

_REACH = "import sys, ray._raylet as r; print(r.GcsClient(address=sys.argv[1]).cluster_id.hex())"


def gcs_address(address: str) -> str:
    """``host:port`` of the cluster's GCS; ``ray://`` in front is accepted, ``auto`` is Ray's own word."""
    plain = address.removeprefix("ray://").removeprefix("ray:")
    host, _, port = plain.rpartition(":")
    if plain != "auto" and not (host and port.isdigit()):
        raise InputError(f"{address!r} is not the address of a Ray cluster",
                         fix="give host:port of its head node (port 6379 by default), or auto")
    return plain


def reach(address: str, *, deadline_s: float) -> None:
    """Raise unless a GCS answers there in time. Asked from a process of its own: ``ray.init`` retries for ten minutes."""
    if address == "auto":
        return
    try:
        asked = subprocess.run([sys.executable, "-c", _REACH, address], capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        raise StageTimeout(f"no Ray cluster answered at {address} within {deadline_s:g} s",
                           fix="check `ray status` there, and that the port is the GCS's (6379), not the Ray client's (10001)") from None
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunnerUnavailable(f"the Ray cluster at {address} cannot be used: {last}",
                                fix="check the address and that both ends run one Ray version")


def machine_nodes(topology: Topology, nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Machine → its living Ray node: by node id, by the resource ``machine:<name>``, or by address, in this order.

    Raises:
        ClusterChanged: machines without a node, all of them named.
    """
    alive = [n for n in nodes if n["Alive"]]
    found, missing = {}, []
    for machine in topology.machines:
        node = _node_of(machine, alive)
        if node is None:
            missing.append(machine)
        else:
            found[machine.name] = node
    if missing:
        names = ", ".join(m.name + (f" (address {m.address})" if m.address else "") for m in missing)
        there = ", ".join(sorted(_label(n) for n in alive)) or "none"
        raise ClusterChanged(f"no living Ray node stands for {names}; living nodes: {there}",
                             fix=f"start it with --resources '{{\"{MACHINE}{missing[0].name}\": 1}}', or run profile and schedule again",
                             details={"missing": [m.name for m in missing]})
    return found


def lost_machines(node_ids: Mapping[str, str], *, timeout_s: float = 3.0) -> list[str]:
    """Machines whose Ray node is gone: Ray says so, or the node's own port no longer answers. Ray itself notices after up to 15 s."""
    import ray

    there = {node["NodeID"]: node for node in ray.nodes()}
    return [machine for machine, node in node_ids.items() if not _answers(there.get(node), timeout_s)]


def _answers(node: dict[str, Any] | None, timeout_s: float) -> bool:
    if node is None or not node["Alive"]:
        return False
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), timeout=timeout_s).close()
    except OSError:
        return False
    return True


def _node_of(machine: Machine, alive: list[dict[str, Any]]) -> dict[str, Any] | None:
    tests = (
        lambda n: bool(machine.ray_node_id) and n["NodeID"] == machine.ray_node_id,
        lambda n: machine_resource(machine.name) in n["Resources"],
        lambda n: bool(machine.address) and n["NodeManagerAddress"] == machine.address,
    )
    for test in tests:
        matches = [n for n in alive if test(n)]
        if len(matches) == 1:
            return matches[0]
    return None


def _label(node: dict[str, Any]) -> str:
    names = [r.removeprefix(MACHINE) for r in node["Resources"] if r.startswith(MACHINE)]
    gpus, cpus = (node["Resources"].get(kind, 0) for kind in ("GPU", "CPU"))
    return f"{names[0] if names else node['NodeManagerAddress']} ({gpus:g} GPU, {cpus:g} CPU)"
