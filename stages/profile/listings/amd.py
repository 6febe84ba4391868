"""``amd-smi static --json``: AMD's GPUs of a machine.

Written against what ROCm's amd-smi prints in public reports; no AMD GPU was at hand to try it on.
"""

from __future__ import annotations

import json
from typing import Any

from artifacts.errors import InputError
from stages.profile.devices.amd import memory_bytes
from stages.profile.devices.found import FoundDevice
from stages.profile.listings.listed import ListedMachine


def read_amd(text: str, *, where: str, machine: str) -> ListedMachine:
    data = json.loads(text)
    listed = data.get("gpu_data", [data]) if isinstance(data, dict) else data
    if not isinstance(listed, list):
        raise InputError(f"{where}: gpu_data is no list of GPUs", fix="give the output of amd-smi static --json as it was printed")
    devices: list[FoundDevice] = []
    notes: list[str] = []
    for number, gpu in enumerate(listed):
        asic = _dict(gpu, "asic")
        name = str(asic.get("market_name") or "")
        if name in ("", "N/A"):
            notes.append(f"GPU {number} has no name and is left out")
            continue
        memory = memory_bytes(_dict(gpu, "vram").get("size"))
        if memory is None:
            notes.append(f"GPU {number} ({name}) reports no memory")
        serial, place = str(asic.get("asic_serial") or ""), str(_dict(gpu, "bus").get("bdf") or number)
        uuid = f"AMD-{serial}" if serial not in ("", "N/A") else f"AMD-{machine}-{place}"
        devices.append(FoundDevice(index=len(devices), vendor="amd", name=name, uuid=uuid, memory_bytes=memory,
                                   dtypes=("bf16", "fp16", "fp32"), compute_capability=str(asic.get("target_graphics_version") or "")))
    if not devices:
        raise InputError(f"{where} lists no GPU", fix="give the output of amd-smi static --json")
    return ListedMachine(name=machine, devices=tuple(devices), notes=tuple(notes))


def _dict(gpu: Any, key: str) -> dict[str, Any]:
    value = gpu.get(key) if isinstance(gpu, dict) else None
    return value if isinstance(value, dict) else {}
