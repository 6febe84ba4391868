"""The profile as a page a person reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from artifacts.topology import Device, Measured, Topology
from artifacts.units import show_bytes, show_flops, show_rate, show_seconds
from stages.profile.basis import classes_by_machine, link_class
from stages.profile.inside import Inside


def topology_page(topology: Topology, *, notes: list[str], changes: list[str], previous: str,
                  inside: Mapping[str, Inside] | None = None) -> str:
    """Markdown: device classes with their rates and where those come from, machines, link classes, notes, changes."""
    kind = topology.cluster.kind + (", reconstructed" if topology.cluster.reconstructed else "")
    lines = [f"# Topology of {topology.cluster.name} ({kind})", "",
             f"{len(topology.machines)} machines, {len(topology.devices)} devices, fingerprint `{topology.fingerprint[:12]}`", ""]
    lines += _classes(topology) + _machines(topology) + _links(topology)
    reduced = [f"- {machine}: {result.line}" for machine, result in (inside or {}).items() if result.line]
    if reduced:
        lines += ["## All-reduce inside machines", "", *reduced, ""]
    if topology.unreachable:
        lines += ["## Unreachable", "", *(f"- {u.machine}: {u.reason}" for u in topology.unreachable), ""]
    if previous:
        lines += [f"## Since {previous}", "", *([f"- {c}" for c in changes] or ["unchanged"]), ""]
    if notes:
        lines += ["## Notes", "", *(f"- {n}" for n in notes), ""]
    return "\n".join(lines)


def _classes(topology: Topology) -> list[str]:
    groups: dict[str, list[Device]] = defaultdict(list)
    for device in topology.devices:
        groups[device.device_class].append(device)
    lines = ["## Devices", "", "| class | devices | memory | compute | weight reads | from the host | to the host | rates from |",
             "|---|---|---|---|---|---|---|---|"]
    for name, devices in groups.items():
        first, compute = devices[0], devices[0].achieved_flops_per_s
        lines.append(f"| {_cell(name)} | {len(devices)} | {show_bytes(first.memory_bytes)} | {_shown(compute, show_flops)} "
                     f"| {_shown(first.memory_bandwidth_bytes_per_s, show_rate)} | {_shown(first.host_bandwidth_bytes_per_s, show_rate)} "
                     f"| {_shown(first.to_host_bandwidth_bytes_per_s, show_rate)} | {compute.provenance}: {_cell(compute.source)} |")
    return [*lines, ""]


def _machines(topology: Topology) -> list[str]:
    devices = classes_by_machine(topology.devices)
    counts: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for machine in topology.machines:
        counts[machine.region, machine.zone, devices.get(machine.name, "none"), show_bytes(machine.host_memory_bytes),
               str(machine.cpus)].append(machine.name)
    lines = ["## Machines", "", "| machines | region | zone | devices | host memory | CPUs |", "|---|---|---|---|---|---|"]
    for (region, zone, classes, memory, cpus), names in counts.items():
        shown = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
        lines.append(f"| {_cell(shown)} | {_cell(region)} | {_cell(zone)} | {_cell(classes)} | {memory} | {cpus} |")
    return [*lines, ""]


def _links(topology: Topology) -> list[str]:
    machines, devices = {m.name: m for m in topology.machines}, classes_by_machine(topology.devices)
    groups = defaultdict(list)
    for link in topology.links:
        groups[link_class(link, machines, devices)].append(link)
    if not groups:
        return []
    lines = ["## Links", "", "| links | number | one way | bandwidth | from |", "|---|---|---|---|---|"]
    for name, links in groups.items():
        middle = sorted(links, key=lambda k: k.bandwidth_bytes_per_s)[len(links) // 2]
        failed = sum(k.probe == "failed" for k in links)
        lines.append(f"| {_cell(name)} | {len(links)}{f', {failed} failed' if failed else ''} | {show_seconds(middle.latency_s)} "
                     f"| {show_rate(middle.bandwidth_bytes_per_s)} | {middle.provenance} |")
    return [*lines, ""]


def _shown(value: Measured | None, show: Callable[[float], str]) -> str:
    if value is None:
        return "unknown"
    text = show(value.value)
    return f"{text} ± {value.spread:.0%}" if value.spread else text


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
