"""Ray for the stages: a cluster opened with deadlines, ranks pinned to machines and devices, and proof of where they sit."""

from __future__ import annotations

from stages.cluster.groups import pinned_groups, remove_groups
from stages.cluster.names import device_resource, machine_resource
from stages.cluster.probe import Found, probe
from stages.cluster.session import Cluster, open_cluster, refuse_inventory

__all__ = [
    "Cluster",
    "Found",
    "device_resource",
    "machine_resource",
    "open_cluster",
    "pinned_groups",
    "probe",
    "refuse_inventory",
    "remove_groups",
]
