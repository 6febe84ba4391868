"""From an inventory's text to a draft of its topology."""

from __future__ import annotations

import hashlib
import uuid

from pydantic import ValidationError

from artifacts.base import describe
from artifacts.catalog.gpus import Gpu, gpu_by_name
from artifacts.errors import InputError
from artifacts.topology import ClusterRef, Device, Machine, Measured
from artifacts.units import GIB
from artifacts.yaml_text import read_yaml
from stages.profile import rates
from stages.profile.devices.unified import is_unified, part_of_host
from stages.profile.draft import Draft
from stages.profile.host import safe_name
from stages.profile.inventory.links import build_links, inside_link
from stages.profile.inventory.schema import GpuItem, Inventory, MachineItem

MAX_DEVICES = 16_384
MAX_MACHINES = 1_024
"""A link is listed for every ordered pair of machines: a thousand machines are a million links."""


def read_inventory(text: str, *, where: str) -> Draft:
    """The fleet that ``text`` (YAML) describes; ``where`` is what messages call it. Raises :class:`InputError`."""
    return build(parse(text, where=where), where=where)


def parse(text: str, *, where: str) -> Inventory:
    data = read_yaml(text, where=where)
    if not isinstance(data, dict):
        raise InputError(f"{where} does not hold an inventory", fix="start from one of the examples in infra/clusters")
    try:
        return Inventory.model_validate(data)
    except ValidationError as error:
        raise InputError(describe(error, where=where, model=Inventory)) from None


def build(inventory: Inventory, *, where: str) -> Draft:
    """The fleet of an inventory as a draft; ``where`` is what messages call it. Raises :class:`InputError`."""
    machines: list[Machine] = []
    devices: list[Device] = []
    parts: dict[str, list[Gpu]] = {}
    group_of: dict[str, str] = {}
    notes: list[str] = [inventory.description] if inventory.reconstructed and inventory.description else []
    total = sum(item.count * sum(g.count for g in item.gpus) for item in inventory.machines)
    if total > MAX_DEVICES or sum(item.count for item in inventory.machines) > MAX_MACHINES:
        raise InputError(f"{where}: {total} GPUs in {sum(item.count for item in inventory.machines)} machines",
                         fix=f"describe at most {MAX_DEVICES} GPUs in {MAX_MACHINES} machines")
    for place, item in enumerate(inventory.machines):
        here = f"{where}: machines.{place} ({item.name})"
        kinds = [(gpu_by_name(g.gpu, where=here), g) for g in item.gpus]
        for gpu, given in kinds:
            _check_known(gpu, given, where=here)
            if given.achieved_tflops is None and (source := rates.achieved_flops(gpu)) and source.provenance == "assumed":
                notes.append(f"{gpu.name}: compute rate assumed, {source.source}")
        for name in item.names:
            if name in parts:
                raise InputError(f"{here}: machine {name!r} is described twice", fix="give each group of machines a name of its own")
            parts[name] = [gpu for gpu, _ in kinds]
            group_of[name] = item.name
            machines.append(_machine(item, name, parts[name]))
            devices += _devices(item, name, kinds, inventory.name)
    inside = {m.name: inside_link(parts[m.name], m, where=where) for m in machines} if inventory.links.inside_machine is None else {}
    links = build_links(inventory.links, machines, group_of, inside=inside, where=where)
    return Draft(cluster=ClusterRef(kind="inventory", name=inventory.name, reconstructed=inventory.reconstructed),
                 machines=tuple(machines), devices=tuple(devices), links=tuple(links), notes=tuple(dict.fromkeys(notes)))


def _check_known(gpu: Gpu, given: GpuItem, *, where: str) -> None:
    own = {"memory": given.memory_gib, "memory bandwidth": given.memory_gb_per_s, "compute rate": given.achieved_tflops}
    keys = {"memory": "memory_gib", "memory bandwidth": "memory_gb_per_s", "compute rate": "achieved_tflops"}
    missing = [what for what in gpu.unknown if own[what] is None and not (what == "memory" and is_unified(gpu.name))]
    if missing:
        raise InputError(f"{where}: the {' and the '.join(missing)} of {gpu.name} {'are' if len(missing) > 1 else 'is'} not known, "
                         "so nothing can be planned on it", fix="give " + ", ".join(f"{keys[m]}: …" for m in missing) + " beside gpu")


def _machine(item: MachineItem, name: str, gpus: list[Gpu]) -> Machine:
    return Machine(name=name, zone=item.zone, region=item.region, host_memory_bytes=int(item.host_memory_gib * GIB), cpus=item.cpus,
                   allreduce_bytes_per_s=rates.allreduce(gpus, sum(g.count for g in item.gpus)))


def _devices(item: MachineItem, machine: str, kinds: list[tuple[Gpu, GpuItem]], fleet: str) -> list[Device]:
    devices: list[Device] = []
    shared = part_of_host(int(item.host_memory_gib * GIB), sum(g.count for gpu, g in kinds if is_unified(gpu.name)) or 1)
    for gpu, given in kinds:
        for _ in range(given.count):
            device_id = f"{machine}.gpu-{len(devices)}"
            memory = int(given.memory_gib * GIB) if given.memory_gib else shared if is_unified(gpu.name) else gpu.memory_bytes
            compute = _given(given.achieved_tflops, 1e12) or rates.achieved_flops(gpu)
            reads = _given(given.memory_gb_per_s, 1e9) or rates.memory_bandwidth(gpu)
            assert memory is not None and compute is not None and reads is not None
            devices.append(Device(
                id=device_id, machine=machine, vendor=gpu.vendor, name=gpu.driver_names[0] if gpu.driver_names else gpu.name,
                device_class=_class(gpu, given), uuid=_uuid(fleet, device_id), memory_bytes=memory, peak_flops_per_s=rates.peak_flops(gpu),
                achieved_flops_per_s=compute, memory_bandwidth_bytes_per_s=reads, host_bandwidth_bytes_per_s=rates.host_bandwidth(gpu),
                to_host_bandwidth_bytes_per_s=rates.host_bandwidth(gpu), dtypes=list(gpu.dtypes), price_per_hour=given.price_per_hour))
    return devices


def _class(gpu: Gpu, given: GpuItem) -> str:
    """The part's name; with what the inventory says otherwise appended, as such a device is of a class of its own."""
    own = [(given.memory_gib, "GiB"), (given.achieved_tflops, "TFLOPS"), (given.memory_gb_per_s, "GBps")]
    return safe_name("-".join([gpu.name, *(f"{value:g}{unit}" for value, unit in own if value is not None)]))


def _given(value: float | None, unit: float) -> Measured | None:
    return Measured(value=value * unit, provenance="assumed", source="as the inventory says") if value is not None else None


def _uuid(fleet: str, device_id: str) -> str:
    """Lasting, and plainly not a real device's."""
    return f"INV-{uuid.UUID(bytes=hashlib.sha256(f'hetrl/{fleet}/{device_id}'.encode()).digest()[:16])}"
