"""NVIDIA GPUs and MIG instances through NVML (the ``pynvml`` module of nvidia-ml-py).

Written against NVML's documented calls; the project's own tests have no driver to ask, and give :func:`find` a stand-in for the module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from artifacts.catalog.gpus import find_gpu
from stages.profile.devices.dtypes import dtypes_of
from stages.profile.devices.found import Finding, FoundDevice
from stages.profile.devices.mig import part_of, whole_name

_SIGNS_OF_A_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")


def driver_present() -> bool:
    """Whether asking NVML is worth a process (a driver can hang, so it is asked in one)."""
    return any(Path(path).exists() for path in _SIGNS_OF_A_DRIVER)


def load_nvml() -> Any | None:
    """The ``pynvml`` module, or None where nvidia-ml-py is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def find(nvml: Any) -> Finding:
    """Every GPU NVML lists, MIG instances in place of the GPU they are cut from. ``nvml`` is the ``pynvml`` module.

    A value NVML does not report is None with a note; a GPU that cannot be opened is left out with a note.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Finding((), (f"NVML cannot be used: {error}",))
    try:
        devices: list[FoundDevice] = []
        notes: list[str] = []
        for number in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                for instance, parent in _instances(nvml, handle):
                    devices.append(_device(nvml, instance, index=len(devices), parent=parent, whole=handle, notes=notes))
            except nvml.NVMLError as error:
                notes.append(f"GPU {number} could not be read and is left out: {error}")
        return Finding(tuple(devices), tuple(notes))
    finally:
        nvml.nvmlShutdown()


def _instances(nvml: Any, handle: Any) -> list[tuple[Any, str]]:
    """The GPU itself, or its MIG instances with its UUID as their parent."""
    mode = _read(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    if mode != nvml.NVML_DEVICE_MIG_ENABLE:
        return [(handle, "")]
    parent = _text(nvml.nvmlDeviceGetUUID(handle))
    found = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        instance = _read(nvml, partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place))
        if instance is not None:
            found.append((instance, parent))
    return found


def _device(nvml: Any, handle: Any, *, index: int, parent: str, whole: Any, notes: list[str]) -> FoundDevice:
    name = _text(nvml.nvmlDeviceGetName(handle))
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    memory = _usable_memory(nvml, handle)
    capability = _read(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(whole))
    if memory is None:
        notes.append(f"{name} ({uuid}): NVML does not report its memory (a part with unified memory, or no permission)")
    if capability is None:
        notes.append(f"{name} ({uuid}): compute capability unknown, so bf16 is not assumed")
    part = part_of(find_gpu(whole_name(name)), name=name) if parent else None
    return FoundDevice(index=index, vendor="nvidia", name=name, uuid=uuid, memory_bytes=memory, dtypes=dtypes_of(capability), parent=parent,
                       part=part,
                       compute_capability=f"{capability[0]}.{capability[1]}" if capability else "")


def condition(nvml: Any, uuid: str) -> str:
    """The clocks of a GPU now, and what holds them down; "" where NVML cannot say. A MIG instance has its GPU's clocks."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ""
    try:
        handle = _read(nvml, lambda: nvml.nvmlDeviceGetHandleByUUID(uuid))
        if handle is None:
            return ""
        if uuid.startswith("MIG-"):
            handle = _read(nvml, lambda: nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)) or handle
        clock = _read(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        most = _read(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
        bits = _read(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        reasons = [said for name, said in _REASONS.items() if bits & getattr(nvml, name, 0)]
        return ", ".join([*([f"SM {clock} of {most} MHz"] if clock and most else []),
                          *([f"slowed by {' and '.join(reasons)}"] if reasons else [])])
    finally:
        nvml.nvmlShutdown()


_REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap", "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSyncBoost": "sync boost", "nvmlClocksThrottleReasonSwThermalSlowdown": "temperature (software)",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "temperature (hardware)", "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksThrottleReasonDisplayClockSetting": "display clocks",
}
"""NVML's reasons for low clocks that are a fault: idle and clocks set by the owner are not."""


def _usable_memory(nvml: Any, handle: Any) -> int | None:
    """Bytes without what the driver reserves, where the driver tells the two apart (NVML's memory structure of version 2)."""
    info = _read(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    if info is not None and info.total:
        return int(info.total) - int(info.reserved)
    info = _read(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return int(info.total) if info is not None and info.total else None


def _read(nvml: Any, call: Callable[[], Any]) -> Any:
    """What the call gives, or None where NVML says that it has no such thing."""
    try:
        return call()
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    """NVML gave bytes in its older bindings and text in its newer ones."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
