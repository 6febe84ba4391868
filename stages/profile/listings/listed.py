"""A machine as a tool lists it, before anything else is known of it. What the tool does not say is None."""

from __future__ import annotations

from dataclasses import dataclass

from stages.profile.devices.found import FoundDevice


@dataclass(frozen=True)
class ListedMachine:
    """``away``: why it cannot be used now, or "". Devices are in the tool's order."""

    name: str
    devices: tuple[FoundDevice, ...] = ()
    host_memory_bytes: int | None = None
    cpus: int | None = None
    region: str = ""
    zone: str = ""
    away: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedLinks:
    """How the GPUs of a machine are joined, as ``nvidia-smi topo -m`` says: (GPU, GPU) → NV12, PIX, PHB, SYS, …"""

    machine: str
    joined: dict[tuple[int, int], str]


Listed = ListedMachine | ListedLinks
