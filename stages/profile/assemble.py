"""From what the probes answered to devices of a topology."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from artifacts.catalog.gpus import Gpu, find_gpu
from artifacts.topology import ComputePoint, Device, Measured
from stages.profile import rates
from stages.profile.devices.found import FoundDevice, Placed
from stages.profile.devices.mig import whole_name
from stages.profile.host import safe_name


def build_devices(devices: Sequence[Placed], answers: Mapping[str, dict[str, Any]], *,
                  stragglers: Collection[str]) -> tuple[list[Device], list[str]]:
    """Devices with their rates, and a line for each one left out. ``answers``: device id → what its probe answered.

    Devices of a class are interchangeable, so each has its class's median rates; a straggler has its own, and so a class of its own.
    A device that could not be measured takes its class's rates, and the catalogue's where no device of the class could.
    """
    built, left_out = [], []
    peers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for placed in devices:
        if placed.id in answers:
            peers[_class(placed, stragglers)].append(answers[placed.id])
    for placed in devices:
        device, name = placed.device, _class(placed, stragglers)
        if device.memory_bytes is None:
            left_out.append(f"{placed.id} ({device.name}) is left out: its memory is unknown")
            continue
        known = _measured(peers[name]) if peers[name] else catalogued(device)
        if known is None:
            left_out.append(f"{placed.id} ({device.name}) is left out: it could not be measured and is not in the catalogue")
            continue
        gpu = find_gpu(device.name)
        built.append(Device(
            id=placed.id, machine=placed.machine, vendor=device.vendor, name=device.name, uuid=device.uuid,
            memory_bytes=device.memory_bytes, device_class=name,
            peak_flops_per_s=rates.peak_flops(gpu) if gpu and not device.parent else None,
            compute_capability=device.compute_capability, dtypes=list(device.dtypes), mig_parent=device.parent, cores=device.cores,
            **known))
    return built, left_out


def _class(placed: Placed, stragglers: Collection[str]) -> str:
    return device_class(placed.device) + (f"-slow-{placed.id}" if placed.id in stragglers else "")


def device_class(device: FoundDevice) -> str:
    """The catalogue's name of a whole GPU it knows; else name and memory; for a CPU share its name and cores, or its part of one."""
    if device.vendor == "cpu":
        plain = re.sub(r"\((R|TM)\)|\bCPU\b|@.*$", "", device.name)
        return safe_name(f"cpu-{plain.strip() or 'unnamed'}-{device.quota or device.cores:g}c")
    gpu = find_gpu(device.name)
    if gpu and gpu.memory_bytes and device.memory_bytes and not device.parent and abs(device.memory_bytes / gpu.memory_bytes - 1) < 0.1:
        return gpu.name
    return safe_name(f"{device.name.removeprefix('NVIDIA ')}-{round((device.memory_bytes or 0) / 2**30)}GiB")


def _measured(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The class's rates from the answers of its devices: medians by size, the widest spread."""
    curves = [_curve(a) for a in answers]
    curve = [ComputePoint(tokens=points[0].tokens, width=points[0].width, flops_per_s=statistics.median([p.flops_per_s for p in points]),
                          spread=max(p.spread for p in points)) for points in zip(*curves, strict=True)]
    first = answers[0]
    clocks = " / ".join(sorted({a["condition"] for a in answers if a["condition"]})[:3])
    source = f"{first['engine']}, {first['dtype']}, {first['clock']}, {len(answers)} devices" + (f", {clocks}" if clocks else "")
    top = max(curve, key=_size)

    def rate(what: str) -> Measured:
        return Measured(value=statistics.median([a[what]["rate"] * a["granted"] for a in answers]), provenance="measured",
                        spread=max(a[what]["spread"] for a in answers), source=f"{source}, {first[what]['size'] >> 20} MiB")
    return {
        "achieved_flops_per_s": Measured(value=top.flops_per_s, provenance="measured", spread=top.spread,
                                         source=f"{source}, {top.tokens} × {top.width} × {top.width}"),
        "compute_curve": curve, "memory_bandwidth_bytes_per_s": rate("stream"), "host_bandwidth_bytes_per_s": rate("copy"),
        "to_host_bandwidth_bytes_per_s": rate("back") if first["back"] else None,
    }


def catalogued(device: FoundDevice) -> dict[str, Any] | None:
    """The catalogue's rates for a device, or None; a MIG instance has its part of the whole GPU's."""
    gpu = find_gpu(whole_name(device.name))
    if gpu is None:
        return None
    if device.parent:
        return _part(gpu, device)
    compute, memory = rates.achieved_flops(gpu), rates.memory_bandwidth(gpu)
    if compute is None or memory is None:
        return None
    return {"achieved_flops_per_s": compute, "memory_bandwidth_bytes_per_s": memory, **_host(gpu)}


def _part(gpu: Gpu, device: FoundDevice) -> dict[str, Any] | None:
    """Compute by its part of the multiprocessors, memory by its part of the memory, the way to the host like any other's."""
    compute, memory = rates.achieved_flops(gpu), rates.memory_bandwidth(gpu)
    if not device.part or not device.memory_bytes or not gpu.memory_bytes or compute is None or memory is None:
        return None
    share = min(1.0, device.memory_bytes / gpu.memory_bytes)
    return {"achieved_flops_per_s": Measured(value=compute.value * device.part, provenance="assumed",
                                             source=f"{device.part:.0%} of {gpu.name}: {compute.source}"),
            "memory_bandwidth_bytes_per_s": Measured(value=memory.value * share, provenance="assumed",
                                                     source=f"{share:.0%} of {gpu.name}: {memory.source}"), **_host(gpu)}


def _host(gpu: Gpu) -> dict[str, Any]:
    return {"host_bandwidth_bytes_per_s": rates.host_bandwidth(gpu), "to_host_bandwidth_bytes_per_s": rates.host_bandwidth(gpu)}


def _curve(answer: dict[str, Any]) -> list[ComputePoint]:
    points = [ComputePoint(tokens=p["tokens"], width=p["width"], flops_per_s=p["flops_per_s"] * answer["granted"], spread=p["spread"])
              for p in answer["curve"]]
    return sorted(points, key=lambda p: (p.tokens, p.width))


def slowed(answers: Mapping[str, dict[str, Any]]) -> list[str]:
    """A line for each device whose clocks were held down while it was measured."""
    return [f"{device} was measured {a['condition']}: its rates may be low" for device, a in answers.items() if "slowed" in a["condition"]]


def saturated_flops(answer: dict[str, Any]) -> float:
    """FLOP/s at the largest size that was measured."""
    return max(_curve(answer), key=_size).flops_per_s


def _size(point: ComputePoint) -> tuple[int, int]:
    return point.tokens * point.width**2, point.width
