"""Profiles this machine: finds its devices, measures each, and measures the link between two processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from artifacts.errors import HetrlError, StageTimeout
from artifacts.topology import ClusterRef, Link, Machine
from stages.profile.assemble import build_devices, device_class, saturated_flops
from stages.profile.devices import cpu, nvidia
from stages.profile.devices.found import Finding, FoundDevice
from stages.profile.draft import Draft
from stages.profile.host import Host, this_host
from stages.profile.probes.launch import Probe, ProbeFailed
from stages.profile.stragglers import find_stragglers

DEVICE_PART = 0.75
"""Part of the measuring time that the devices get; the link between processes has the rest."""
START_S = 60.0
"""Time a probe may take to start (importing PyTorch on a busy machine) on top of what it may measure."""
NVML_DEADLINE_S = 20.0
BUSY_PART = 0.3
"""Part of the time that other programs may take before the person is told."""

Report = Callable[[float, float, str], None]


@dataclass
class _Result:
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)


def profile_local(*, devices: int | None, seconds: float, machine: str, strict: bool, report: Report) -> Draft:
    """This machine as a draft. Takes about ``seconds`` plus the start of the probes; CPU shares are measured all at once, as they work.

    Raises :class:`StageTimeout` when nothing could be measured, and with ``strict`` when anything could not.
    """
    host = this_host(machine)
    report(0, 4, f"looking for the devices of {host.name}")
    finding = find_devices(host, shares=devices)
    notes = list(finding.notes)
    report(1, 4, f"measuring {len(finding.devices)} devices of {host.name}")
    result = _measure(finding.devices, seconds=seconds * DEVICE_PART)
    slow = find_stragglers(_rates(finding, result))
    if slow:  # one interruption must not brand a device: a straggler is one that is slow twice
        report(2, 4, f"measuring again, as {', '.join(sorted(slow))} seemed slow")
        again = _measure(finding.devices, seconds=seconds * DEVICE_PART)
        confirmed = find_stragglers(_rates(finding, again))
        slow = {device: part for device, part in confirmed.items() if device in slow}
        result = again if again.answers else result
    notes += [f"{device}: {fault}" for device, fault in result.faults.items()]
    notes += [f"straggler {device}: {part:.0%} of its class's median rate" for device, part in slow.items()]
    waited = max((a["waited"] for a in result.answers.values()), default=0.0)
    if waited > BUSY_PART:
        notes.append(f"{host.name} was busy while it was measured (other programs had {waited:.0%} of the time): its rates may be low")

    report(3, 4, "measuring the link between two processes")
    links, link_notes = _loopback(host, seconds=seconds * (1 - DEVICE_PART))
    notes += link_notes
    if strict and (result.faults or link_notes):
        raise HetrlError(f"strict profile of {host.name}: {'; '.join([*result.faults.values(), *link_notes])}",
                         fix="mend it, or profile without strict to leave out what cannot be measured")
    built, left_out = build_devices(host, finding.devices, result.answers, stragglers=set(slow))
    if not built:
        raise StageTimeout(f"no device of {host.name} could be measured: {'; '.join(sorted({*result.faults.values(), *left_out}))}")
    report(4, 4, f"{len(built)} devices measured")
    return Draft(
        cluster=ClusterRef(kind="local", name=host.name),
        machines=(Machine(name=host.name, host_memory_bytes=host.memory_bytes, cpus=host.cores, address="127.0.0.1"),),
        devices=tuple(built), links=links, stragglers=tuple(sorted(slow)), notes=(*notes, *left_out),
    )


def find_devices(host: Host, *, shares: int | None) -> Finding:
    """The machine's GPUs, or its CPU in shares where it has none or ``shares`` is given."""
    notes: tuple[str, ...] = ()
    if shares is None and nvidia.driver_present():
        try:
            with Probe("nvml", deadline_s=NVML_DEADLINE_S) as probe:
                answer = probe.read()
            found = tuple(FoundDevice(**{**d, "dtypes": tuple(d["dtypes"])}) for d in answer["devices"])
            notes = tuple(answer["notes"])
            if found:
                return Finding(found, notes)
        except ProbeFailed as fault:
            notes = (f"the NVIDIA driver did not answer, so only the CPU is used: {fault}",)
    shared = cpu.find(host, shares=shares)
    return Finding(shared.devices, (*notes, *shared.notes))


def _measure(devices: tuple[FoundDevice, ...], *, seconds: float) -> _Result:
    """All devices at once, each by a process of its own; one that fails costs only its own answer."""
    result = _Result()
    probes: dict[str, Probe] = {}
    deadline = START_S + 4 * seconds
    try:
        for device in devices:
            kind = "cpu" if device.vendor == "cpu" else "cuda"
            threads = str(max(1, device.cores))
            env = {"CUDA_VISIBLE_DEVICES": device.uuid if kind == "cuda" else "", "OMP_NUM_THREADS": threads,
                   "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
            probes[device.id] = Probe("device", ["--device", kind, "--threads", threads, "--seconds", f"{seconds:.3f}",
                                                 "--memory-bytes", str(device.memory_bytes or 0)], deadline_s=deadline, env=env)
        for step in ("ready", "answer"):
            for name, probe in probes.items():
                if name in result.faults:
                    continue
                try:
                    answer = probe.read()
                    if step == "answer":
                        result.answers[name] = answer
                except ProbeFailed as fault:
                    result.faults[name] = str(fault)
            if step == "ready":
                for name, probe in probes.items():
                    if name not in result.faults:
                        probe.go()
    finally:
        for probe in probes.values():
            probe.close()
    return result


def _rates(finding: Finding, result: _Result) -> list[tuple[str, str, float]]:
    return [(d.id, device_class(d), saturated_flops(result.answers[d.id])) for d in finding.devices if d.id in result.answers]


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
