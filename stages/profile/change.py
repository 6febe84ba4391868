"""What changed between two profiles of a cluster, in words; noise of measurement is no change."""

from __future__ import annotations

from artifacts.topology import Topology
from artifacts.topology_change import describe_change as described
from stages.profile.basis import same_rate


def describe_change(old: Topology, new: Topology) -> list[str]:
    """One line a change, the gravest first. What is described, not measured, has no noise."""
    exact = new.cluster.kind == "inventory"
    return described(old, new, same=lambda name, now, was: now == was or (not exact and same_rate(name, now, was)))
