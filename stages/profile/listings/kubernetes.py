"""Kubernetes' nodes, as ``kubectl get nodes -o json`` (or yaml) prints them, with the labels of NVIDIA's or AMD's node labellers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from artifacts.errors import InputError
from artifacts.units import MIB
from artifacts.yaml_text import read_yaml
from stages.profile.devices.found import FoundDevice
from stages.profile.devices.mig import whole_name
from stages.profile.listings.described import counted
from stages.profile.listings.listed import ListedMachine
from stages.profile.listings.types import gpu_of

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)")
_UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def read_kubernetes(text: str, *, where: str, types: Mapping[str, str]) -> list[ListedMachine]:
    data = json.loads(text) if text.lstrip()[:1] == "{" else read_yaml(text, where=where)
    items = (data.get("items") or []) if data.get("kind") != "Node" else [data]
    nodes = [item for item in items if isinstance(item, dict) and item.get("kind", "Node") == "Node"]
    if not nodes:
        raise InputError(f"{where} lists no node", fix="give the output of kubectl get nodes -o json")
    return [_machine(node, where=where, types=types) for node in nodes]


def _machine(node: Mapping[str, Any], *, where: str, types: Mapping[str, str]) -> ListedMachine:
    meta, status = _dict(node, "metadata"), _dict(node, "status")
    labels, capacity = _dict(meta, "labels"), _dict(status, "allocatable") or _dict(status, "capacity")
    name = str(meta.get("name") or "")
    if not name:
        raise InputError(f"{where}: a node has no name", fix="give the output of kubectl get nodes -o json as it was printed")
    notes: list[str] = []
    devices: list[FoundDevice] = []
    away = _away(node, status)
    for resource, amount in sorted(capacity.items()) if not away else ():
        count = int(str(amount)) if str(amount).isdigit() else 0
        if count and re.fullmatch(r"(nvidia|amd)\.com/(gpu|mig-.*)(\.shared)?", resource):
            devices += _devices(resource, count, labels, name, len(devices), notes, types=types, where=f"{where}: node {name}")
    cores, memory = _cores(capacity.get("cpu")), _bytes(capacity.get("memory"))
    return ListedMachine(name=name, devices=tuple(devices), cpus=cores, host_memory_bytes=memory, region=str(labels.get(REGION) or ""),
                         zone=str(labels.get(ZONE) or ""), away=away, notes=tuple(notes))


def _devices(resource: str, count: int, labels: Mapping[str, Any], machine: str, first: int, notes: list[str], *, types: Mapping[str, str],
             where: str) -> list[FoundDevice]:
    amd = resource.startswith("amd.com")
    profile = found.group(1) if (found := re.search(r"mig-(\d+g\.\d+gb)", resource)) else ""
    product = str(labels.get("amd.com/gpu.product-name" if amd else "nvidia.com/gpu.product") or "")
    if not product and "gpu" not in types:
        raise InputError(f"{where}: {resource} is counted, but no label says which GPU it is",
                         fix="run the GPU feature discovery, or give types: {gpu: a name of the catalogue}")
    replicas = int(stated) if (stated := str(labels.get("nvidia.com/gpu.replicas") or 1)).isdigit() else 1
    if replicas > 1 and not profile:
        notes.append(f"{resource}: {count} shares of {count // replicas} GPUs, which count as GPUs")
        count //= replicas
    if not profile and (single := re.search(r"-MIG-(\d+g\.\d+gb)", product)):  # the strategy "single": instances counted as GPUs
        profile = single.group(1)
    gpu = gpu_of(re.sub(r"-SHARED$", "", whole_name(product)) or "gpu", features=(), types=types, where=where)
    own = labels.get(f"nvidia.com/mig-{profile}.memory") if profile else None
    memory = _mib(own or (labels.get("nvidia.com/gpu.memory") if not profile or "-MIG-" in product else None))
    return list(counted(gpu, count, machine=machine, first=first, where=where, profile=profile, memory_bytes=memory))


def _away(node: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    ready = [c.get("status") for c in status.get("conditions") or [] if isinstance(c, dict) and c.get("type") == "Ready"]
    if ready and ready[0] != "True":
        return "Kubernetes says it is not ready"
    return "Kubernetes says it is cordoned" if _dict(node, "spec").get("unschedulable") else ""


def _mib(value: Any) -> int | None:
    return int(value) * MIB if value is not None and str(value).isdigit() and int(value) else None


def _cores(value: Any) -> int | None:
    found = _QUANTITY.fullmatch(str(value if value is not None else ""))
    return max(1, int(float(found.group(1)) / (1000 if found.group(2) else 1))) if found and found.group(2) in ("", "m") else None


def _bytes(value: Any) -> int | None:
    found = _QUANTITY.fullmatch(str(value if value is not None else ""))
    return int(float(found.group(1)) * _UNITS[found.group(2)]) or None if found and found.group(2) in _UNITS else None


def _dict(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}
