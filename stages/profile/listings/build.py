"""From listings of several tools to a draft of the fleet they list together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import PurePath

from artifacts.catalog.gpus import Gpu, find_gpu
from artifacts.errors import InputError
from artifacts.topology import ClusterRef, Device, Link, Machine, Measured, Unreachable
from artifacts.units import GIB
from stages.profile import rates
from stages.profile.assemble import catalogued, device_class
from stages.profile.devices.found import FoundDevice
from stages.profile.devices.mig import whole_name
from stages.profile.devices.unified import share_host_memory
from stages.profile.draft import Draft
from stages.profile.host import safe_name
from stages.profile.inventory.links import build_links
from stages.profile.inventory.schema import GpuItem
from stages.profile.listings.amd import read_amd
from stages.profile.listings.kinds import KNOWN, kind_of, near_miss
from stages.profile.listings.kubernetes import read_kubernetes
from stages.profile.listings.listed import Listed, ListedLinks, ListedMachine
from stages.profile.listings.nvidia import read_smi
from stages.profile.listings.schema import HostItem, ListingFile, Listings
from stages.profile.listings.slurm import read_scontrol, read_sinfo
from stages.profile.listings.topo import inside_rate, read_topo


def read_listings(given: Listings) -> Draft:
    """The fleet. Machines that a scheduler says are away are unreachable; those without a GPU are left out.

    Raises :class:`InputError` on a text that no known tool printed, and on what is missing and cannot be assumed.
    """
    listed = [found for file in given.files for found in _named(_read(file, given.types), file.where)]
    notes: list[str] = []
    hosts = {h.name: h for h in given.machines}
    machines = [_with_host(m, hosts.get(m.name)) for m in _merged([m for m in listed if isinstance(m, ListedMachine)])]
    unused = hosts.keys() - {m.name for m in machines}
    if unused:
        raise InputError(f"machines: {', '.join(sorted(unused))}: no file lists such a machine",
                         fix="use " + ", ".join(m.name for m in machines[:12]))
    topos = {m.machine: m for m in listed if isinstance(m, ListedLinks)}
    notes += [f"{name}: no file lists such a machine, so how its GPUs are joined is not used"
              for name in topos.keys() - {m.name for m in machines}]
    away = tuple(Unreachable(machine=m.name, reason=m.away) for m in machines if m.away)
    notes += [f"{m.name}: {note}" for m in machines for note in m.notes]
    notes += [f"{u.machine} is left out: {u.reason}" for u in away]
    notes += [f"{m.name} is left out: it has no GPU" for m in machines if not m.devices and not m.away]
    built: list[Machine] = []
    devices: list[Device] = []
    inside: dict[str, Link | None] = {}
    for m in (m for m in machines if m.devices and not m.away):
        here = _devices(m, {g.gpu: g for g in given.gpus}, notes)
        if here:
            built.append(_machine(m, len(here)))
            devices += here
            inside[m.name] = _inside(m, topos.get(m.name), given, notes)
    if not devices:
        raise InputError(f"{given.name}: no GPU that can be planned on is listed: {'; '.join(notes[:4])}",
                         fix="give what is missing under gpus and machines")
    links = build_links(given.links, built, {m.name: m.name for m in built}, inside=inside, where=given.name)
    return Draft(cluster=ClusterRef(kind="inventory", name=given.name), machines=tuple(built), devices=tuple(devices), links=tuple(links),
                 unreachable=away, notes=tuple(dict.fromkeys(notes)))


def _read(file: ListingFile, types: Mapping[str, str]) -> Sequence[Listed]:
    machine = safe_name(file.machine or PurePath(file.where).name.split(".")[0])
    match kind_of(file.text):
        case "nvidia-smi":
            return [read_smi(file.text, where=file.where, machine=machine)]
        case "nvidia-smi topo":
            return [read_topo(file.text, where=file.where, machine=machine)]
        case "amd-smi":
            return [read_amd(file.text, where=file.where, machine=machine)]
        case "scontrol":
            return read_scontrol(file.text, where=file.where, types=types)
        case "sinfo":
            return read_sinfo(file.text, where=file.where, types=types)
        case "kubernetes":
            return read_kubernetes(file.text, where=file.where, types=types)
        case "inventory":
            raise InputError(f"{file.where} is an inventory, which says all by itself", fix="give it as the cluster, not among its files")
    what, fix = near_miss(file.text) or ("is not the output of a tool that is known here", "give one of: " + "; ".join(KNOWN))
    raise InputError(f"{file.where} {what}", fix=fix)


def _named(listed: Sequence[Listed], where: str) -> Sequence[Listed]:
    """The same, once every machine has a name that a topology can have."""
    for machine in listed:
        if isinstance(machine, ListedMachine) and safe_name(machine.name) != machine.name:
            raise InputError(f"{where}: {machine.name[:60]!r} is not the name of a machine", fix="give the output as it was printed")
    return listed


def _merged(listed: Sequence[ListedMachine]) -> list[ListedMachine]:
    """One machine a name: what a driver says of its devices goes before what a scheduler counts; the scheduler knows the host."""
    machines = []
    for _, group in groupby(sorted(listed, key=lambda m: m.name), key=lambda m: m.name):
        several = list(group)
        drivers = [m for m in several if m.devices and not m.devices[0].uuid.startswith("LST-")]
        if len(drivers) > 1:
            raise InputError(f"machine {drivers[0].name} is listed by two drivers' files", fix="name the machine of each file (machine: …)")
        best = drivers[0] if drivers else several[0]
        for other in several:
            best = replace(best, host_memory_bytes=best.host_memory_bytes or other.host_memory_bytes, cpus=best.cpus or other.cpus,
                           region=best.region or other.region, zone=best.zone or other.zone, away=best.away or other.away)
        machines.append(best)
    return machines


def _with_host(machine: ListedMachine, host: HostItem | None) -> ListedMachine:
    if host is not None:
        machine = replace(machine, region=host.region or machine.region, zone=host.zone or machine.zone, cpus=host.cpus or machine.cpus,
                          host_memory_bytes=int(host.host_memory_gib * GIB) if host.host_memory_gib else machine.host_memory_bytes)
    if machine.devices and not machine.away and (machine.host_memory_bytes is None or machine.cpus is None):
        raise InputError(f"machine {machine.name}: its host's memory and CPUs are in none of the files",
                         fix=f"give machines: [{{name: {machine.name}, host_memory_gib: …, cpus: …}}]")
    return machine


def _machine(m: ListedMachine, devices: int) -> Machine:
    assert m.host_memory_bytes is not None and m.cpus is not None
    parts = [] if any(d.parent for d in m.devices) else [find_gpu(d.name) for d in m.devices]
    known = [gpu for gpu in parts if gpu is not None]
    return Machine(name=m.name, region=m.region, zone=m.zone, host_memory_bytes=m.host_memory_bytes, cpus=m.cpus,
                   allreduce_bytes_per_s=rates.allreduce(known, devices) if len(known) == len(parts) else {})


def _devices(m: ListedMachine, given: Mapping[str, GpuItem], notes: list[str]) -> list[Device]:
    built = []
    own_memory = [replace(d, memory_bytes=int(item.memory_gib * GIB)) if (item := _given(d, given)) and item.memory_gib else d
                  for d in m.devices]
    devices, shared = share_host_memory(own_memory, m.host_memory_bytes)
    notes += [f"{m.name}.{note}" for note in shared]
    for device in devices:
        item = _given(device, given)
        known = catalogued(device) or {}
        own = {"achieved_flops_per_s": _own(item.achieved_tflops if item else None, 1e12),
               "memory_bandwidth_bytes_per_s": _own(item.memory_gb_per_s if item else None, 1e9)}
        known |= {key: value for key, value in own.items() if value is not None}
        missing = [what for what, key in (("compute rate", "achieved_flops_per_s"), ("memory bandwidth", "memory_bandwidth_bytes_per_s"))
                   if known.get(key) is None] + (["memory"] if device.memory_bytes is None else [])
        if missing:
            notes.append(f"{m.name}.{device.id} ({device.name}) is left out: its {' and '.join(missing)} "
                         f"{'are' if len(missing) > 1 else 'is'} not known here: give gpus: [{{gpu: {device.name}, …}}]")
            continue
        gpu = find_gpu(device.name) if not device.parent else None
        built.append(Device(
            id=f"{m.name}.{device.id}", machine=m.name, vendor=device.vendor, name=device.name, uuid=device.uuid, mig_parent=device.parent,
            device_class=device_class(device), memory_bytes=device.memory_bytes or 0, compute_capability=device.compute_capability,
            dtypes=list(device.dtypes), peak_flops_per_s=rates.peak_flops(gpu) if gpu else None,
            price_per_hour=item.price_per_hour if item else None, **known))
    return built


def _given(device: FoundDevice, given: Mapping[str, GpuItem]) -> GpuItem | None:
    """What the person says of that device's kind, by the driver's name for it or for the GPU it is cut from."""
    return given.get(device.name) or given.get(whole_name(device.name))


def _own(value: float | None, unit: float) -> Measured | None:
    return Measured(value=value * unit, provenance="assumed", source="as given beside the listing") if value is not None else None


def _inside(m: ListedMachine, topo: ListedLinks | None, given: Listings, notes: list[str]) -> Link | None:
    """As given, or of the slowest pair that the topology file shows, or the catalogue's for the slowest kind of GPU."""
    item = given.links.inside_machine
    if item is not None or len(m.devices) == 1:
        return None
    parts = [find_gpu(whole_name(d.name)) for d in m.devices]
    known: list[Gpu] = [gpu for gpu in parts if gpu is not None]
    if len(known) == len(parts):
        if topo is not None and (found := inside_rate(topo, known)) is not None:
            latency, rate, why = found
            notes.append(f"{m.name}: GPUs are joined by {why}")
            return Link(source=m.name, target=m.name, latency_s=latency, bandwidth_bytes_per_s=rate, provenance="assumed")
        found_rates = [link for gpu in known if (link := rates.link_bandwidth(gpu)) is not None]
        if len(found_rates) == len(known) and not any(d.parent for d in m.devices):
            slowest = min(found_rates, key=lambda r: r.value)
            return Link(source=m.name, target=m.name, latency_s=max(rates.link_latency_s(gpu) for gpu in known),
                        bandwidth_bytes_per_s=slowest.value, provenance=slowest.provenance)
    notes.append(f"the link inside {m.name} is not known, and so not in the topology: give links.inside_machine")
    return None
