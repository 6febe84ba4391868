"""Which machine a Ray node stands for: its name, its place, and the devices it declares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.cluster.names import DEVICE, MACHINE
from stages.profile.host import safe_name

REGION_LABEL, ZONE_LABEL = "ray.io/availability-region", "ray.io/availability-zone"
"""Ray's own labels of a node; KubeRay sets them from the Kubernetes node's."""


@dataclass(frozen=True)
class Node:
    """``devices``: what the node declares as ``device:<id>``; ``gpus``: how many GPUs it declares. ``named``: it calls its machine by
    name (the resource ``machine:<name>``), so the name outlives the node's host."""

    name: str
    node_id: str
    address: str
    region: str = ""
    zone: str = ""
    devices: tuple[str, ...] = ()
    gpus: int = 0
    named: bool = False


def machine_nodes(listed: Sequence[Mapping[str, Any]]) -> tuple[list[Node], list[str]]:
    """The living nodes of ``ray.nodes()`` as machines, by name, and a line for each that stands for none."""
    nodes, notes = [], []
    for entry in sorted((n for n in listed if n["Alive"]), key=lambda n: (n["NodeManagerAddress"], n["NodeID"])):
        node = _node(entry)
        if node.named or node.devices or entry["Resources"].get("CPU", 0) or node.gpus:
            nodes.append(node)
        else:
            notes.append(f"Ray node {node.name} ({node.address}) declares no CPU, GPU or device: it stands for no machine")
    return sorted(_distinct(nodes), key=lambda n: _natural(n.name)), notes


def _node(entry: Mapping[str, Any]) -> Node:
    resources, labels = entry["Resources"], entry.get("Labels") or {}
    own = sorted(r.removeprefix(MACHINE) for r in resources if r.startswith(MACHINE))
    name = safe_name(own[0] if own else entry["NodeManagerHostname"])
    return Node(name=name, node_id=entry["NodeID"], address=entry["NodeManagerAddress"], region=labels.get(REGION_LABEL, ""),
                zone=labels.get(ZONE_LABEL, ""), named=bool(own), gpus=int(resources.get("GPU", 0)),
                devices=tuple(sorted((r.removeprefix(DEVICE) for r in resources if r.startswith(DEVICE)), key=_natural)))


def _distinct(nodes: Sequence[Node]) -> list[Node]:
    """Names that several nodes have (one host, several nodes) are told apart by address, then by node id."""
    for tell in (lambda n: n.address, lambda n: n.node_id[:8]):
        counts = Counter(n.name for n in nodes)
        nodes = [n if counts[n.name] == 1 else _renamed(n, f"{n.name}-{tell(n)}") for n in nodes]
    return list(nodes)


def _renamed(node: Node, name: str) -> Node:
    return Node(**{**node.__dict__, "name": safe_name(name)})


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts ``a-10`` after ``a-9``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
