"""Finding and measuring the devices of the machine this runs on, each by a probe in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from stages.profile.devices import amd, cpu, nvidia
from stages.profile.devices.found import Finding, FoundDevice
from stages.profile.devices.unified import share_host_memory
from stages.profile.devices.visible import visible
from stages.profile.host import Host
from stages.profile.probes.launch import Probe, ProbeFailed

START_S = 60.0
"""Time a probe may take to start (importing PyTorch on a busy machine) on top of what it may measure."""
DRIVER_DEADLINE_S = 20.0


@dataclass
class Measurements:
    """What the device probes answered, and why others did not; both by the device's index in the machine."""

    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)


def find_devices(host: Host, *, shares: int | None) -> Finding:
    """The machine's GPUs, or its CPU in shares where it has none or ``shares`` is given."""
    notes: list[str] = []
    if shares is None:
        found: list[FoundDevice] = []
        for probe, present in (("nvml", nvidia.driver_present()), ("amdsmi", amd.driver_present())):
            if present:
                finding = _ask(probe)
                found += [replace(d, index=len(found) + place) for place, d in enumerate(finding.devices)]
                notes += finding.notes
        if found:
            devices, said = share_host_memory(found, host.memory_bytes)
            return Finding(devices, (*notes, *said))
    shared = cpu.find(host, shares=shares)
    return Finding(shared.devices, (*notes, *shared.notes))


def _ask(name: str) -> Finding:
    """What a driver's library lists, asked in a process of its own."""
    try:
        with Probe(name, deadline_s=DRIVER_DEADLINE_S) as probe:
            answer = probe.read()
        return Finding(tuple(FoundDevice.of(d) for d in answer["devices"]), tuple(answer["notes"]))
    except ProbeFailed as fault:
        return Finding((), (f"the driver did not answer, so its GPUs are not used: {fault}",))


def measure_devices(devices: tuple[FoundDevice, ...], *, seconds: float) -> Measurements:
    """All devices at once, as they work; one whose probe fails costs only its own answer."""
    result = Measurements()
    probes: dict[int, Probe] = {}
    deadline = START_S + 4 * seconds
    cpus = max(1, sum(d.vendor == "cpu" for d in devices))
    try:
        for device in devices:
            kind = "cpu" if device.vendor == "cpu" else "cuda"  # PyTorch calls AMD's devices cuda too
            threads = str(max(1, device.cores))
            env = {**visible(device, devices), "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
            probes[device.index] = Probe("device", ["--device", kind, "--threads", threads, "--seconds", f"{seconds:.3f}",
                                                    "--memory-bytes", str(device.memory_bytes or 0), "--sharing", str(cpus)],
                                           deadline_s=deadline, env=env)
        for step in ("ready", "answer"):
            for index, probe in probes.items():
                if index in result.faults:
                    continue
                try:
                    answer = probe.read()
                    if step == "answer":
                        result.answers[index] = answer
                except ProbeFailed as fault:
                    result.faults[index] = str(fault)
            if step == "ready":
                for index, probe in probes.items():
                    if index not in result.faults:
                        probe.go()
    finally:
        for probe in probes.values():
            probe.close()
    return result
