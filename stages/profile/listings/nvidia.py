"""``nvidia-smi -q -x``: the GPUs of a machine, MIG instances in place of the GPU they are cut from.

The element names are those of NVIDIA's nvsmi_device_v11, v12 and v13 documents; what changed its name between them is looked up under both.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from artifacts.catalog.gpus import find_gpu
from artifacts.errors import InputError
from artifacts.topology import Dtype
from artifacts.units import MIB
from stages.profile.devices.dtypes import dtypes_of, dtypes_of_architecture
from stages.profile.devices.found import FoundDevice
from stages.profile.devices.mig import part_of
from stages.profile.listings.listed import ListedMachine
from stages.profile.listings.xml import parse_xml

_IDLE = ("gpu_idle", "applications_clocks_setting")
"""Reasons for low clocks that are no fault: nothing to do, or set so by the owner."""


def read_smi(text: str, *, where: str, machine: str) -> ListedMachine:
    """Raises :class:`InputError` where the text is not such a document or lists no GPU."""
    root = parse_xml(text, where=where)
    gpus = root.findall("gpu") if root.tag == "nvidia_smi_log" else []
    if not gpus:
        raise InputError(f"{where} lists no GPU", fix="give the output of nvidia-smi -q -x of a machine with GPUs")
    devices: list[FoundDevice] = []
    notes: list[str] = []
    for number, gpu in enumerate(gpus):
        name = _text(gpu, "product_name")
        if not name:
            notes.append(f"GPU {number} has no name and is left out")
            continue
        instances = gpu.findall("mig_devices/mig_device")
        if _text(gpu, "mig_mode/current_mig") == "Enabled" and not instances:
            notes.append(f"GPU {number} ({name}) is in MIG mode without an instance: nothing can run on it, so it is left out")
            continue
        for element in instances or [gpu]:
            devices.append(_device(gpu, element, name=name, index=len(devices), number=number, notes=notes))
    return ListedMachine(name=machine, devices=tuple(devices), notes=tuple(notes))


def _device(gpu: Element, element: Element, *, name: str, index: int, number: int, notes: list[str]) -> FoundDevice:
    """``element`` is the GPU itself or one of its MIG instances."""
    parent = _text(gpu, "uuid") or f"unknown-{number}"
    instance = element is not gpu
    memory = _memory(element)
    label = f"GPU {number} ({name})" + (f", MIG instance {_text(element, 'index')}" if instance else "")
    if memory is None:
        notes.append(f"{label} reports no memory")
    condition = _condition(gpu)
    if "slowed" in condition:
        notes.append(f"{label} was not at its full clocks: {condition}")
    if instance:
        counted = _number(element, "device_attributes/shared/multiprocessor_count")
        place = f"{_text(element, 'gpu_instance_id')}/{_text(element, 'compute_instance_id')}"
        return FoundDevice(index=index, vendor="nvidia", name=f"{name} MIG" + (f" {counted}SM" if counted else ""), parent=parent,
                           uuid=_text(element, "uuid") or f"MIG-{parent}/{place}", memory_bytes=memory, dtypes=_dtypes(gpu, name),
                           compute_capability=_text(gpu, "compute_cap"), part=part_of(find_gpu(name), multiprocessors=counted),
                           condition=condition)
    return FoundDevice(index=index, vendor="nvidia", name=name, uuid=parent, memory_bytes=memory, dtypes=_dtypes(gpu, name),
                       compute_capability=_text(gpu, "compute_cap"), condition=condition)


def _memory(element: Element) -> int | None:
    """Bytes a program may use: the total without what the driver reserves, where it says so; None where that cannot be."""
    total, reserved = _number(element, "fb_memory_usage/total"), _number(element, "fb_memory_usage/reserved") or 0
    return (total - reserved) * MIB if total and reserved < total else None


def _dtypes(gpu: Element, name: str) -> tuple[Dtype, ...]:
    """By compute capability where the document has it, by its architecture, by the catalogue; else bf16 is not assumed."""
    given = re.fullmatch(r"(\d+)\.(\d+)", _text(gpu, "compute_cap"))
    if given:
        return dtypes_of((int(given.group(1)), int(given.group(2))))
    known = find_gpu(name)
    return dtypes_of_architecture(_text(gpu, "product_architecture")) or (tuple(known.dtypes) if known else dtypes_of(None))


def _condition(gpu: Element) -> str:
    """Clocks, and what holds them down, as far as the document says."""
    clock, most = _number(gpu, "clocks/sm_clock"), _number(gpu, "max_clocks/sm_clock")
    parts = [f"SM {clock} of {most} MHz"] if clock and most else []
    reasons = []
    for word in ("event", "throttle"):  # what v12 calls event reasons was called throttle reasons before
        for element in gpu.findall(f"clocks_{word}_reasons/*"):
            reason = element.tag.removeprefix(f"clocks_{word}_reason_")
            if (element.text or "").strip() == "Active" and reason not in _IDLE:
                reasons.append(reason.replace("_", " "))
    return ", ".join([*parts, *([f"slowed by {' and '.join(reasons)}"] if reasons else [])])


def _text(element: Element, path: str) -> str:
    """"" for what is missing and for the tool's ways to say that it does not know."""
    text = (element.findtext(path) or "").strip()
    return "" if text in ("N/A", "[N/A]", "None", "Unknown Error", "Not Supported", "[Not Supported]") or "deprecated" in text else text


def _number(element: Element, path: str) -> int | None:
    found = re.match(r"\d+", _text(element, path))
    return int(found.group()) if found else None
