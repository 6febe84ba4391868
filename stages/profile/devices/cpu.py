"""The CPU in equal shares, each standing for one accelerator."""

from __future__ import annotations

from artifacts.errors import InputError
from stages.profile.devices.found import Finding, FoundDevice
from stages.profile.host import Host, device_uuid

MAX_DEFAULT_SHARES = 8
HOST_RESERVE = 0.1
"""Part of the memory that stays with the operating system and the data loader."""
MIN_SHARE_BYTES = 256 << 20


def find(host: Host, *, shares: int | None) -> Finding:
    """``shares`` devices (by default one a core, at most eight). More shares than cores is allowed, and said.

    Raises :class:`InputError` when a share would have no memory worth the name.
    """
    count = shares or min(host.cores, MAX_DEFAULT_SHARES)
    memory = int(host.memory_bytes * (1 - HOST_RESERVE)) // count
    if memory < MIN_SHARE_BYTES:
        raise InputError(f"{count} shares of machine {host.name} would have {memory >> 20} MiB each",
                         fix=f"use devices: {max(1, int(host.memory_bytes * (1 - HOST_RESERVE)) // MIN_SHARE_BYTES)} or fewer")
    part = round(host.quota / count, 2) if host.quota is not None and host.quota < count else None
    devices = tuple(
        FoundDevice(index=index, vendor="cpu", name=host.cpu_name or "CPU", uuid=device_uuid(host, "cpu", index), memory_bytes=memory,
                    dtypes=("bf16", "fp16", "fp32"), cores=max(1, host.cores // count), quota=part)
        for index in range(count)
    )
    if count <= host.cores:
        return Finding(devices)
    return Finding(devices, (f"{count} CPU devices on {host.cores} cores share them: each is given its part of a core's rate",))
