"""Profiles this machine: finds its devices, measures each, and measures the link between two processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from artifacts.errors import HetrlError, StageTimeout
from artifacts.topology import ClusterRef, Link, Machine
from stages.profile.assemble import build_devices, device_class, saturated_flops, slowed
from stages.profile.devices.found import Placed
from stages.profile.draft import Draft
from stages.profile.host import Host, this_host
from stages.profile.inside import inside_link, reduce_inside
from stages.profile.measure import START_S, Measurements, find_devices, measure_devices
from stages.profile.probes.launch import Probe, ProbeFailed
from stages.profile.stragglers import find_stragglers

DEVICE_PART, LINK_PART = 0.7, 0.2
"""Parts of the measuring time that the devices and the link between processes get; the all-reduce among the devices has the rest."""
BUSY_PART = 0.3
"""Part of the time that other programs may take before the person is told."""

Report = Callable[[float, float, str], None]


def profile_local(*, devices: int | None, seconds: float, machine: str, strict: bool, report: Report) -> Draft:
    """This machine as a draft. Takes about ``seconds`` plus the start of the probes; CPU shares are measured all at once, as they work.

    Raises :class:`StageTimeout` when nothing could be measured, and with ``strict`` when anything could not.
    """
    host = this_host(machine)
    report(0, 5, f"looking for the devices of {host.name}")
    finding = find_devices(host, shares=devices)
    notes = list(finding.notes)
    report(1, 5, f"measuring {len(finding.devices)} devices of {host.name}")
    placed = [Placed(d.id, host.name, d) for d in finding.devices]
    result = measure_devices(finding.devices, seconds=seconds * DEVICE_PART)
    slow = find_stragglers(_rates(placed, result))
    if slow:  # one interruption must not brand a device: a straggler is one that is slow twice
        report(2, 5, f"measuring again, as {', '.join(sorted(slow))} seemed slow")
        again = measure_devices(finding.devices, seconds=seconds * DEVICE_PART)
        confirmed = find_stragglers(_rates(placed, again))
        slow = {device: part for device, part in confirmed.items() if device in slow}
        result = again if again.answers else result
    notes += [f"{finding.devices[index].id}: {fault}" for index, fault in result.faults.items()]
    notes += [f"straggler {device}: {part:.0%} of its class's median rate" for device, part in slow.items()]
    waited = max((a["waited"] for a in result.answers.values()), default=0.0)
    if waited > BUSY_PART:
        notes.append(f"{host.name} was busy while it was measured (other programs had {waited:.0%} of the time): its rates may be low")

    report(3, 5, "measuring the link between two processes")
    links, link_notes = _loopback(host, seconds=seconds * LINK_PART)
    report(4, 5, f"all-reduce among {len(finding.devices)} devices")
    inside = reduce_inside(finding.devices, seconds=seconds * (1 - DEVICE_PART - LINK_PART))
    link_notes += [inside.line] if inside.fault else []
    notes += link_notes
    if strict and (result.faults or link_notes):
        raise HetrlError(f"strict profile of {host.name}: {'; '.join([*result.faults.values(), *link_notes])}",
                         fix="mend it, or profile without strict to leave out what cannot be measured")
    answers = {p.id: result.answers[p.device.index] for p in placed if p.device.index in result.answers}
    notes += slowed(answers)
    built, left_out = build_devices(placed, answers, stragglers=slow)
    if not built:
        raise StageTimeout(f"no device of {host.name} could be measured: {'; '.join(sorted({*result.faults.values(), *left_out}))}")
    report(5, 5, f"{len(built)} devices measured")
    return Draft(
        cluster=ClusterRef(kind="local", name=host.name),
        machines=(Machine(name=host.name, host_memory_bytes=host.memory_bytes, cpus=host.cores, address="127.0.0.1",
                          allreduce_bytes_per_s=inside.rates),),
        devices=tuple(built), links=tuple(inside_link(link, inside) for link in links), stragglers=tuple(sorted(slow)),
        inside={host.name: inside}, notes=(*notes, *left_out),
    )


def _rates(devices: Sequence[Placed], result: Measurements) -> list[tuple[str, str, float]]:
    return [(p.id, device_class(p.device), saturated_flops(result.answers[p.device.index]))
            for p in devices if p.device.index in result.answers]


def _loopback(host: Host, *, seconds: float) -> tuple[tuple[Link, ...], list[str]]:
    deadline = START_S + 4 * seconds
    try:
        with Probe("network", ["--serve"], deadline_s=deadline) as server:
            port = server.read()["port"]
            with Probe("network", ["--port", str(port), "--seconds", f"{seconds:.3f}"], deadline_s=deadline) as client:
                client.read()
                client.go()
                answer = client.read()
    except ProbeFailed as fault:
        return (), [f"the link inside {host.name} is unknown: {fault}"]
    return (Link(source=host.name, target=host.name, latency_s=answer["latency_s"], bandwidth_bytes_per_s=answer["bandwidth_bytes_per_s"],
                 provenance="measured", probe="ok"),), []
