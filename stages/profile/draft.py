"""A topology before its fingerprint: what was found and measured, with the notes for the person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from artifacts.topology import ClusterRef, Device, Link, Machine, Topology, Unreachable
from stages.profile.inside import Inside


@dataclass(frozen=True)
class Draft:
    """``notes`` say what could not be read, what was left out, and who is slower than its class (``stragglers``: device ids).
    ``inside``: machine → the all-reduce among its own devices."""

    cluster: ClusterRef
    machines: tuple[Machine, ...]
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()
    stragglers: tuple[str, ...] = ()
    inside: Mapping[str, Inside] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    def topology(self, basis: dict[str, float]) -> Topology:
        """The document, with the fingerprint that these anchors give."""
        return Topology(cluster=self.cluster, machines=list(self.machines), devices=list(self.devices), links=list(self.links),
                        unreachable=list(self.unreachable), basis=basis)
