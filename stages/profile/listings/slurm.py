"""SLURM's nodes, as ``scontrol show node`` or ``sinfo`` prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from artifacts.errors import InputError
from artifacts.units import MIB
from stages.profile.devices.found import FoundDevice
from stages.profile.listings.described import counted
from stages.profile.listings.listed import ListedMachine
from stages.profile.listings.types import gpu_of

_AWAY = ("down", "drain", "drng", "fail", "maint", "reboot", "power", "unk", "future", "not_responding", "no_respond", "planned_down")
_MIG = re.compile(r"(?:(.*?)[_-])?(\d+g\.\d+gb)$")
MAX_NODES = 4096


def read_scontrol(text: str, *, where: str, types: Mapping[str, str]) -> list[ListedMachine]:
    """A record a node, on many lines or (``-o``) on one; a range of names (as in slurm.conf) is as many nodes. Nodes without a GPU are left
    out, and said."""
    machines = []
    for record in re.findall(r"\bNodeName=.*?(?=\bNodeName=|\Z)", text, re.DOTALL):
        fields: dict[str, str] = dict(re.findall(r"(?<!\S)(\w+)=(\S*)", record))
        gres = fields.get("Gres", "")
        features = fields.get("AvailableFeatures", fields.get("ActiveFeatures", fields.get("Feature", ""))).split(",")
        machines += [_machine(name, gres=gres, cpus=fields.get("CPUTot", fields.get("CPUs", "")), memory=fields.get("RealMemory", ""),
                              features=features, state=fields.get("State", ""), types=types, where=where)
                     for name in expand(fields["NodeName"], where=where)]
    return machines


def read_sinfo(text: str, *, where: str, types: Mapping[str, str]) -> list[ListedMachine]:
    """Columns as its heading names them; a node that several partitions list is one machine."""
    lines = [line.split() for line in text.strip().splitlines() if line.strip()]
    head = [word.upper() for word in lines[0]]
    place = {name: head.index(name) for name in head}
    machines: dict[str, ListedMachine] = {}
    for number, words in enumerate(lines[1:], start=2):
        if len(words) != len(head):
            raise InputError(f"{where}, line {number}: {len(words)} columns under {len(head)} headings",
                             fix='print it with sinfo -N -o "%N %G %c %m %f %T", whose columns hold no blanks')

        def column(*names: str, words: list[str] = words) -> str:
            return next((words[place[name]] for name in names if name in place), "")

        for name in expand(column("NODELIST", "HOSTNAMES"), where=where):
            machines[name] = _machine(name, gres=column("GRES"), cpus=column("CPUS"), memory=column("MEMORY"), state=column("STATE"),
                                      features=column("AVAIL_FEATURES", "FEATURES", "ACTIVE_FEATURES").split(","), types=types, where=where)
    return list(machines.values())


def _machine(name: str, *, gres: str, cpus: str, memory: str, features: Sequence[str], state: str, types: Mapping[str, str],
             where: str) -> ListedMachine:
    state = state.lower()
    away = f"SLURM says {state}" if any(word in state for word in _AWAY) or state.endswith("*") else ""
    devices: list[FoundDevice] = []
    for item in [] if away else _items(gres):
        devices += _devices(item, name, len(devices), features=features, types=types, where=f"{where}: node {name}")
    # "128+" is what sinfo prints of several unlike nodes in one line: at least so many.
    return ListedMachine(name=name, devices=tuple(devices), cpus=_number(cpus), away=away,
                         host_memory_bytes=megabytes * MIB if (megabytes := _number(memory)) else None)


def _items(gres: str) -> list[str]:
    """``gpu:a100:8(S:0-1),gpu:1g.10gb:7,tmp:844G`` → the GPU items, without which sockets and indices they have."""
    plain: str = re.sub(r"\((?!null)[^)]*\)", "", gres)
    return [item for item in plain.split(",") if item.split(":")[0] == "gpu"]


def _devices(item: str, machine: str, first: int, *, features: Sequence[str], types: Mapping[str, str], where: str) -> list[FoundDevice]:
    words = item.split(":")
    count = int(words[-1]) if words[-1].isdigit() else 1
    kind = ":".join(words[1:-1] if words[-1].isdigit() else words[1:])
    if not kind or kind == "(null)":
        kind = _kind_from(features, types)
    if not kind:
        raise InputError(f"{where}: SLURM counts {count} GPUs and does not say which", fix="give types: {gpu: a name of the catalogue}")
    mig = _MIG.match(kind)
    if mig and kind not in types:
        whole = mig.group(1) or _kind_from(features, types)
        if not whole:
            raise InputError(f"{where}: {kind} is a MIG profile of a GPU that is not named",
                             fix="give types: {gpu: a name of the catalogue}")
        return list(counted(gpu_of(whole, features=features, types=types, where=where), count, machine=machine, first=first, where=where,
                            profile=mig.group(2)))
    return list(counted(gpu_of(kind, features=features, types=types, where=where), count, machine=machine, first=first, where=where))


def _kind_from(features: Sequence[str], types: Mapping[str, str]) -> str:
    """What the person says GPUs without a type are, or a feature that they say is a GPU."""
    return "gpu" if "gpu" in types else next((f for f in features if f in types), "")


def _number(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found.group()) if found and int(found.group()) else None


def expand(hosts: str, *, where: str) -> list[str]:
    """``gpu[01-03,07],login1`` → its names. Raises :class:`InputError` on what cannot be read, or is endless."""
    names: list[str] = []
    for item in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", hosts):
        found = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", item)
        if not found:
            names.append(item)
            continue
        before, inside, after = found.groups()
        for part in inside.split(","):
            ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
            if not ends or not 0 <= int(ends.group(2) or ends.group(1)) - int(ends.group(1)) <= MAX_NODES:
                raise InputError(f"{where}: {item[:60]!r} is not a list of hosts", fix="print one node a line: sinfo -N")
            width, low, high = len(ends.group(1)), int(ends.group(1)), int(ends.group(2) or ends.group(1))
            names += [name for i in range(low, high + 1) for name in expand(f"{before}{i:0{width}d}{after}", where=where)]
    return names
