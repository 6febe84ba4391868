"""Devices that a cluster's listing only counts: so many of a kind, without a driver's word on each."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable

from artifacts.catalog.gpus import Gpu
from artifacts.errors import InputError
from stages.profile.devices.found import FoundDevice
from stages.profile.devices.mig import part_of, profile_memory_gb

MOST = 128
"""More GPUs or instances than any machine has: the count is not believed."""


def counted(gpu: Gpu, count: int, *, machine: str, first: int, where: str, profile: str = "",
            memory_bytes: int | None = None) -> Iterable[FoundDevice]:
    """``count`` GPUs, or with a ``profile`` (3g.40gb) MIG instances of them. ``first``: index of the first in its machine.

    Raises :class:`InputError` on a count that no machine has.
    """
    if first + count > MOST:
        raise InputError(f"{where}: {first + count} GPUs in one machine", fix=f"a machine has at most {MOST}: correct the count")
    name = gpu.driver_names[0] if gpu.driver_names else gpu.name
    for index in range(first, first + count):
        stated = profile_memory_gb(profile)
        memory = memory_bytes or (stated * 10**9 if stated else gpu.memory_bytes if not profile else None)
        yield FoundDevice(index=index, vendor=gpu.vendor, name=f"{name} MIG {profile}" if profile else name, uuid=_uuid(machine, index),
                          memory_bytes=memory, dtypes=tuple(gpu.dtypes), parent=f"unknown-{machine}" if profile else "",
                          part=part_of(gpu, name=profile) if profile else None)


def _uuid(machine: str, index: int) -> str:
    """Lasting, and plainly not a real device's."""
    return f"LST-{uuid.UUID(bytes=hashlib.sha256(f'hetrl/listing/{machine}/{index}'.encode()).digest()[:16])}"
