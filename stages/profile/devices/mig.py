"""What part of a GPU a MIG instance has."""

from __future__ import annotations

import re

from artifacts.catalog.gpus import Gpu

MULTIPROCESSORS = {"A100": 108, "A30": 56, "H100-SXM": 132, "H100-PCIe": 114, "H200": 132}
"""Of a whole GPU, by the beginning of its name in the catalogue (NVIDIA's A100, A30, H100 and H200 product briefs)."""
SLICES = {"A30": 4}
"""Compute slices of a whole GPU; 7 for all others (NVIDIA's MIG user guide)."""
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb")


def whole_name(name: str) -> str:
    """The GPU's name in that of its instance, as NVML ("… MIG 3g.40gb") and Kubernetes ("…-MIG-3g.40gb") write it."""
    return re.sub(r"[ -]MIG\b.*$", "", name)


def part_of(gpu: Gpu | None, *, name: str = "", multiprocessors: int | None = None) -> float | None:
    """The instance's part of the GPU's compute: by its multiprocessors where they are counted, else by the slices in its profile."""
    if gpu is None:
        return None
    whole = next((count for start, count in MULTIPROCESSORS.items() if gpu.name.startswith(start)), None)
    if multiprocessors and whole:
        return min(1.0, multiprocessors / whole)
    found = _PROFILE.search(name)
    return int(found.group(1)) / next((n for start, n in SLICES.items() if gpu.name.startswith(start)), 7) if found else None


def profile_memory_gb(name: str) -> int | None:
    """The memory in a profile's name, in 10^9 bytes or 2^30: NVIDIA rounds, so it is used only where nothing better is said."""
    found = _PROFILE.search(name)
    return int(found.group(2)) if found else None
