"""AMD GPUs through the ``amdsmi`` module that ROCm brings.

Written against amdsmi's documented calls; no AMD GPU was at hand to try it on, and the tests give :func:`find` a stand-in for the module.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from stages.profile.devices.found import Finding, FoundDevice

_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
"""amd-smi counts in powers of two, whatever it calls them: 196592 MB is what an MI300X has in MiB."""


def driver_present() -> bool:
    return Path("/dev/kfd").exists()


def load_amdsmi() -> Any | None:
    try:
        return importlib.import_module("amdsmi")
    except (ImportError, OSError, KeyError):  # the module is there, but not the library it loads
        return None


def find(amdsmi: Any) -> Finding:
    """Every GPU amdsmi lists. A value it does not report is None with a note; a GPU that cannot be read is left out with a note."""
    errors: type[Exception] = getattr(amdsmi, "AmdSmiException", Exception)
    try:
        amdsmi.amdsmi_init()
    except errors as error:
        return Finding((), (f"amdsmi cannot be used: {error}",))
    try:
        devices: list[FoundDevice] = []
        notes: list[str] = []
        for number, handle in enumerate(amdsmi.amdsmi_get_processor_handles()):
            try:
                asic = amdsmi.amdsmi_get_gpu_asic_info(handle)
                uuid = amdsmi.amdsmi_get_gpu_device_uuid(handle)
            except errors as error:
                notes.append(f"GPU {number} could not be read and is left out: {error}")
                continue
            try:
                memory = memory_bytes({"value": amdsmi.amdsmi_get_gpu_vram_info(handle)["vram_size"], "unit": "MB"})
            except (errors, KeyError):
                memory = None
            name = str(asic["market_name"])
            if memory is None:
                notes.append(f"{name} ({uuid}): amdsmi does not report its memory")
            devices.append(FoundDevice(index=len(devices), vendor="amd", name=name, uuid=f"AMD-{uuid}", memory_bytes=memory,
                                       dtypes=("bf16", "fp16", "fp32"), compute_capability=str(asic.get("target_graphics_version") or "")))
        return Finding(tuple(devices), tuple(notes))
    finally:
        amdsmi.amdsmi_shut_down()


def memory_bytes(size: Any) -> int | None:
    """Bytes of amd-smi's ``{"value": 196592, "unit": "MB"}``; None for what it does not know, never zero."""
    if not isinstance(size, dict):
        return None
    value, unit = size.get("value"), _UNITS.get(str(size.get("unit")))
    return value * unit if isinstance(value, int) and value > 0 and unit else None
