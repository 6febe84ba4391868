"""The profile stage: from a cluster to its topology, its fingerprint, and what changed since the last profile."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from artifacts.errors import InputError
from artifacts.manifest import VersionRef
from artifacts.topology import Topology
from stages.contract import StageContext
from stages.profile.basis import anchored
from stages.profile.change import describe_change
from stages.profile.draft import Draft
from stages.profile.fleet import RaySource, draft_ray
from stages.profile.host import safe_name, this_host
from stages.profile.inventory import build, read_inventory
from stages.profile.listings import kind_of, near_miss, read_listings
from stages.profile.listings.schema import ListingFile, Listings
from stages.profile.local import profile_local
from stages.profile.parameters import InventoryCluster, ListingsCluster, LocalCluster, ProfileParameters, RayCluster, ScenarioCluster
from stages.profile.report import topology_page
from stages.profile.scenarios import scenario_inventory
from stages.profile.settle import settle


def run(ctx: StageContext) -> dict[str, Any]:
    """Profile the cluster of the request. Writes ``topology.json`` and ``topology.md``."""
    parameters = ctx.parameters(ProfileParameters)
    if isinstance(parameters.cluster, InventoryCluster | ScenarioCluster | ListingsCluster):
        draft = _described(parameters.cluster)
        earlier = _of_cluster(ctx, "inventory", draft.cluster.name)
        topology = anchored(draft, [])
    elif isinstance(parameters.cluster, LocalCluster):
        earlier = _of_cluster(ctx, "local", this_host(parameters.machine).name)
        draft, topology = settle(lambda: _measure(parameters, ctx), [t for _, t in earlier], say=ctx.log)
    else:
        source = _ray_source(parameters.cluster, parameters)
        earlier = _of_cluster(ctx, source.kind, source.cluster_name)
        draft, topology = settle(lambda: draft_ray(source, report=ctx.progress), [t for _, t in earlier], say=ctx.log)
    topology = topology.model_copy(update={"measured_at": datetime.now(UTC)})
    previous, changes = "", []
    if earlier:
        ref, last = earlier[0]
        previous = ref.version
        changes = describe_change(last, topology)
    for note in draft.notes:
        ctx.log(note, level="warning")
    ctx.write(topology)
    page = topology_page(topology, notes=list(draft.notes), changes=changes, previous=previous, inside=draft.inside)
    ctx.write_bytes("topology.md", page.encode())
    return {
        "cluster": topology.cluster.name, "machines": len(topology.machines), "devices": len(topology.devices),
        "fingerprint": topology.fingerprint[:12],
        "changed": bool(earlier) and earlier[0][1].fingerprint != topology.fingerprint, "changes": changes, "previous": previous,
        "stragglers": list(draft.stragglers), "unreachable": [u.machine for u in topology.unreachable], "notes": list(draft.notes),
        "allreduce_bytes_per_s": {name: {str(n): rate for n, rate in r.bus_bytes_per_s.items()} for name, r in draft.inside.items()},
    }


def _described(cluster: InventoryCluster | ScenarioCluster | ListingsCluster) -> Draft:
    if isinstance(cluster, ListingsCluster):
        return read_listings(cluster)
    if isinstance(cluster, InventoryCluster):
        kind = kind_of(cluster.text)
        if kind is None and (missed := near_miss(cluster.text)):
            raise InputError(f"{cluster.where} {missed[0]}", fix=missed[1])
        if kind in (None, "inventory"):
            return read_inventory(cluster.text, where=cluster.where)
        file = ListingFile(text=cluster.text, where=cluster.where)
        return read_listings(Listings(name=safe_name(PurePath(cluster.where).stem), files=[file]))
    return build(scenario_inventory(cluster.name), where=f"scenario {cluster.name}")


def _measure(parameters: ProfileParameters, ctx: StageContext) -> Draft:
    return profile_local(devices=parameters.devices, seconds=parameters.seconds, machine=parameters.machine,
                         strict=parameters.strict, report=ctx.progress)


def _ray_source(cluster: RayCluster, parameters: ProfileParameters) -> RaySource:
    return RaySource(address=cluster.address, name=cluster.name, kind=cluster.kind, seconds=parameters.seconds, devices=parameters.devices,
                     strict=parameters.strict, network_s=cluster.network_seconds)


def _of_cluster(ctx: StageContext, kind: str, name: str) -> list[tuple[VersionRef, Topology]]:
    """Earlier topologies of this cluster, newest first."""
    return [(ref, t) for ref, t in ctx.read_context(Topology) if (t.cluster.kind, t.cluster.name) == (kind, name)]
