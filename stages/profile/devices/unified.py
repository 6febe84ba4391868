"""GPUs whose memory is the host's, and whose driver therefore reports none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from artifacts.units import show_bytes
from stages.profile.devices.found import FoundDevice

PARTS = ("GB10", "Orin", "Xavier", "Thor", "Tegra", "nvgpu", "MI300A")
"""In the names of such parts (NVIDIA's known issues of DGX Spark; Jetson's and AMD's data sheets)."""
HOST_RESERVE = 0.1
"""Of unified memory stays with the operating system; the rest is the GPUs' in equal parts."""


def is_unified(name: str) -> bool:
    return any(part in name for part in PARTS)


def part_of_host(host_memory_bytes: int, sharing: int) -> int:
    """Bytes of each of ``sharing`` devices."""
    return int(host_memory_bytes * (1 - HOST_RESERVE)) // sharing


def share_host_memory(devices: Sequence[FoundDevice], host_memory_bytes: int | None) -> tuple[tuple[FoundDevice, ...], tuple[str, ...]]:
    """The devices, those with unified memory and none reported given their part of the host's, and a line for each of these.

    Memory that is not reported for another reason stays unknown.
    """
    def unified(device: FoundDevice) -> bool:
        return device.memory_bytes is None and is_unified(device.name)

    sharing = sum(unified(d) for d in devices)
    if not sharing or not host_memory_bytes:
        return tuple(devices), ()
    memory = part_of_host(host_memory_bytes, sharing)
    divided = f", divided by {sharing}" if sharing > 1 else ""
    said = f"has the host's memory: {1 - HOST_RESERVE:.0%} of it{divided}, {show_bytes(memory)}, is taken for its own"
    return (tuple(replace(d, memory_bytes=memory) if unified(d) else d for d in devices),
            tuple(f"{d.id} ({d.name}) {said}" for d in devices if unified(d)))
