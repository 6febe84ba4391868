"""Where numbers come from: rates and links as profiled, provenance of the prediction, versions, ranks as found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from artifacts.deployment import Deployment
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.throughput import Throughput
from artifacts.topology import Device, Link, Measured, Topology
from artifacts.units import show_bytes, show_flops, show_rate, show_seconds
from artifacts.views.tables import Table
from artifacts.views.text import clean, listing, task_title


def class_table(topology: Topology) -> Table:
    """A row a device class: its rates, their range over the devices, and their provenance."""
    classes: dict[str, list[Device]] = defaultdict(list)
    for device in topology.devices:
        classes[device.device_class].append(device)
    rows = []
    for name, devices in sorted(classes.items()):
        rows.append(
            (
                clean(name),
                listing(sorted({d.name for d in devices}), limit=2),
                f"{len(devices):,}",
                show_bytes(min(d.memory_bytes for d in devices)),
                _rate([d.achieved_flops_per_s for d in devices], show_flops),
                _rate([d.memory_bandwidth_bytes_per_s for d in devices], show_rate),
            )
        )
    return Table(("Class", "Name", "Devices", "Memory", "Achieved compute", "Memory bandwidth"), rows, frozenset({2, 3}))


def _rate(values: Sequence[Measured], show: Callable[[float], str]) -> str:
    low, high = min(v.value for v in values), max(v.value for v in values)
    text = show(low) if high <= low * 1.005 else f"{show(low)} to {show(high)}"
    return f"{text} ({', '.join(sorted({v.provenance for v in values}))})"


def link_table(topology: Topology) -> Table:
    """Links by kind of distance: how many, slowest to fastest, and their provenance."""
    place = {m.name: m for m in topology.machines}
    kinds: dict[str, list[Link]] = defaultdict(list)
    for link in topology.links:
        a, b = place[link.source], place[link.target]
        kind = (
            "1 inside a machine"
            if a is b
            else "4 between regions"
            if a.region != b.region
            else "3 between zones"
            if a.zone != b.zone
            else "2 between machines of a zone"
        )
        kinds[kind].append(link)
    rows = []
    for kind, links in sorted(kinds.items()):
        bandwidth = sorted(k.bandwidth_bytes_per_s for k in links)
        latency = sorted(k.latency_s for k in links)
        failed = sum(k.probe == "failed" for k in links)
        rows.append(
            (
                kind[2:],
                f"{len(links):,}" + (f", {failed:,} failed" if failed else ""),
                _range(bandwidth, show_rate),
                _range(latency, show_seconds),
                ", ".join(sorted({k.provenance for k in links})),
            )
        )
    return Table(("Links", "Directions", "Bandwidth", "Latency, one way", "From"), rows, frozenset({1}))


def _range(ordered: Sequence[float], show: Callable[[float], str]) -> str:
    low, high = show(ordered[0]), show(ordered[-1])
    return low if low == high else f"{low} to {high}"


def provenance_table(prediction: Prediction) -> Table:
    by_source: dict[str, list[str]] = defaultdict(list)
    for quantity, source in prediction.provenance.items():
        by_source[source].append(quantity)
    rows = [(source, listing(quantities, limit=12)) for source, quantities in sorted(by_source.items())]
    return Table(("Source", "Quantities"), rows)


def identity_table(
    job: Job,
    topology: Topology,
    plan: Plan,
    prediction: Prediction,
    *,
    deployment: Deployment | None,
    throughput: Throughput | None,
    lineage: Mapping[str, str],
) -> Table:
    """What was made from what, and with which versions of which library."""
    rows = [(f"{name}", clean(version)) for name, version in lineage.items()]
    rows += [
        ("job (identity)", job.identity()[:16]),
        ("topology (fingerprint)", topology.fingerprint[:16]),
        ("plan (identity)", plan.identity()[:16]),
    ]
    if plan.solver:
        rows.append(("solver", clean(plan.solver)))
    rows.append(("calibration applied", clean(prediction.calibration) or "none"))
    if topology.cluster.reconstructed:
        rows.append(("cluster", f"{topology.cluster.name}: reconstructed from published ranges, not measured"))
    if throughput:
        rows.append(("engine", clean(throughput.header.engine) + (" (simulated)" if throughput.header.simulated else "")))
        rows.append(("seed", str(throughput.header.seed)))
    versions = {**(deployment.versions if deployment else {}), **(throughput.header.versions if throughput else {})}
    rows += [(clean(k), clean(v)) for k, v in sorted(versions.items())]
    rows += [(f"image {clean(k)}", clean(v)) for k, v in sorted((deployment.image_digests if deployment else {}).items())]
    return Table(("What", "Version"), rows)


def rank_table(deployment: Deployment, *, limit: int = 64) -> Table:
    """Ranks as the processes that hold them proved it; the first ones where there are many."""
    ranks = sorted(deployment.ranks, key=lambda r: (r.task, r.rank))
    rows = [(task_title(r.task), str(r.rank), clean(r.machine), clean(r.device), clean(r.device_uuid)) for r in ranks[:limit]]
    if len(ranks) > limit:
        rows.append((f"and {len(ranks) - limit:,} more", "", "", "", ""))
    return Table(("Task", "Rank", "Machine", "Device", "UUID found"), rows, frozenset({1}))
