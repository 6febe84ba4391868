"""The profile stage: from a cluster to its topology, its fingerprint, and what changed since the last profile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from artifacts.errors import InputError
from artifacts.topology import Topology
from stages.contract import StageContext
from stages.profile.basis import anchored
from stages.profile.change import describe_change
from stages.profile.draft import Draft
from stages.profile.inventory import read_inventory
from stages.profile.local import profile_local
from stages.profile.parameters import InventoryCluster, LocalCluster, ProfileParameters
from stages.profile.report import topology_page


def run(ctx: StageContext) -> dict[str, Any]:
    """Profile the cluster of the request. Writes ``topology.json`` and ``topology.md``."""
    parameters = ctx.parameters(ProfileParameters)
    draft = draft_of(parameters, ctx)
    earlier = [(ref, topology) for ref, topology in ctx.read_context(Topology)
               if (topology.cluster.kind, topology.cluster.name) == (draft.cluster.kind, draft.cluster.name)]
    topology = anchored(draft, [t for _, t in earlier]).model_copy(update={"measured_at": datetime.now(UTC)})
    previous, changes = "", []
    if earlier:
        ref, last = earlier[0]
        previous = ref.version
        changes = describe_change(last, topology)
    for note in draft.notes:
        ctx.log(note, level="warning")
    ctx.write(topology)
    page = topology_page(topology, notes=list(draft.notes), changes=changes, previous=previous)
    ctx.write_bytes("topology.md", page.encode())
    return {
        "machines": len(topology.machines), "devices": len(topology.devices), "fingerprint": topology.fingerprint[:12],
        "changed": bool(earlier) and earlier[0][1].fingerprint != topology.fingerprint, "changes": changes, "previous": previous,
        "stragglers": list(draft.stragglers), "unreachable": [u.machine for u in topology.unreachable], "notes": list(draft.notes),
    }


def draft_of(parameters: ProfileParameters, ctx: StageContext) -> Draft:
    cluster = parameters.cluster
    if isinstance(cluster, LocalCluster):
        return profile_local(devices=parameters.devices, seconds=parameters.seconds, machine=parameters.machine,
                             strict=parameters.strict, report=ctx.progress)
    if isinstance(cluster, InventoryCluster):
        return read_inventory(cluster.text, where=cluster.where)
    raise InputError(f"a live Ray cluster ({cluster.address}) cannot be profiled yet",
                     fix="use cluster local on its only machine, or describe it in an inventory (see infra/clusters)")
