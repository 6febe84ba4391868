"""Links between all pairs of machines, from the classes an inventory gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from artifacts.catalog.gpus import Gpu
from artifacts.errors import InputError
from artifacts.topology import Link, Machine, Provenance
from artifacts.units import gbit_per_s, milliseconds
from stages.profile import rates
from stages.profile.inventory.schema import LinkItem, Links, PairItem

Pair = frozenset[str]


@dataclass(frozen=True)
class _Rate:
    latency_s: float
    bandwidth_bytes_per_s: float
    provenance: Provenance = "assumed"


def build_links(given: Links, machines: list[Machine], group_of: dict[str, str], *, inside: Mapping[str, Link | None],
                where: str) -> list[Link]:
    """Both directions of every pair that is connected, and the link inside each machine.

    ``group_of``: the group (entry of the inventory) of each machine; ``inside``: the link inside it, where ``given`` does not say.
    Raises :class:`InputError` naming the class that is missing, or a name in a pair that nothing has.
    """
    regions = _pairs(given.regions, {m.region for m in machines if m.region}, where=f"{where}: links.regions", what="region")
    named = _pairs(given.machines, {*group_of, *group_of.values()}, where=f"{where}: links.machines", what="machine or group of machines")
    own = [_link(m.name, m.name, _rate(given.inside_machine)) if given.inside_machine else inside.get(m.name) for m in machines]
    links = [link for link in own if link is not None]
    for a, b in combinations(machines, 2):
        rate = _between(given, a, b, regions, named, group_of, where=where)
        if rate is not None:
            links += [_link(a.name, b.name, rate), _link(b.name, a.name, rate)]
    return links


def _between(given: Links, a: Machine, b: Machine, regions: dict[Pair, PairItem], named: dict[Pair, PairItem],
             group_of: dict[str, str], *, where: str) -> _Rate | None:
    """The most particular entry: the two machines, a machine and a group, two groups, the two regions, the class."""
    for x in (a.name, group_of[a.name]):
        for y in (b.name, group_of[b.name]):
            if (pair := named.get(frozenset((x, y)))) is not None:
                return _pair_rate(pair)
    if a.region != b.region:
        if (pair := regions.get(frozenset((a.region, b.region)))) is not None:
            return _pair_rate(pair)
        both = f"regions {a.region or '(none)'} and {b.region or '(none)'}"
        return _rate(_needed(given.between_regions, "links.between_regions", both, where,
                             "add that pair to links.regions, or give links.between_regions"))
    if a.zone != b.zone:
        item = given.same_region or given.same_zone
        return _rate(_needed(item, "links.same_region", f"machines {a.name} and {b.name} of one region", where, "give links.same_region"))
    return _rate(_needed(given.same_zone, "links.same_zone", f"machines {a.name} and {b.name} of one zone", where, "give links.same_zone"))


def _needed(item: LinkItem | None, key: str, what: str, where: str, fix: str) -> LinkItem:
    if item is None:
        raise InputError(f"{where}: {key} is missing, and {what} need it", fix=f"{fix}: {{latency_ms: …, bandwidth_gbit_per_s: …}}")
    return item


def inside_link(gpus: list[Gpu], machine: Machine, *, where: str) -> Link:
    """Of the slowest kind of GPU in the machine: traffic between two kinds goes at the slower one's rate."""
    found = [(gpu, rates.link_bandwidth(gpu)) for gpu in gpus]
    unknown = [gpu.name for gpu, rate in found if rate is None]
    if unknown:
        raise InputError(f"{where}: the link rate inside machine {machine.name} is not known ({', '.join(unknown)})",
                         fix="give links.inside_machine: {latency_ms: …, bandwidth_gbit_per_s: …}")
    slowest = min((rate for _, rate in found if rate is not None), key=lambda rate: rate.value)
    latency_s = max(rates.link_latency_s(gpu) for gpu in gpus)
    rate = _Rate(latency_s=latency_s, bandwidth_bytes_per_s=slowest.value, provenance=slowest.provenance)
    return _link(machine.name, machine.name, rate)


def _pairs(items: list[PairItem], known: set[str], *, where: str, what: str) -> dict[Pair, PairItem]:
    found: dict[Pair, PairItem] = {}
    for place, item in enumerate(items):
        for name in item.between:
            if name not in known:
                raise InputError(f"{where}.{place}: no {what} is called {name[:60]!r}", fix="use " + ", ".join(sorted(known)[:12]))
        pair = frozenset(item.between)
        if pair in found:
            raise InputError(f"{where}.{place}: {' and '.join(item.between)} are listed twice", fix="both directions are one entry")
        found[pair] = item
    return found


def _pair_rate(pair: PairItem) -> _Rate | None:
    if not pair.connected or pair.latency_ms is None or pair.bandwidth_gbit_per_s is None:
        return None
    return _Rate(latency_s=milliseconds(pair.latency_ms), bandwidth_bytes_per_s=gbit_per_s(pair.bandwidth_gbit_per_s))


def _rate(item: LinkItem) -> _Rate:
    return _Rate(latency_s=milliseconds(item.latency_ms), bandwidth_bytes_per_s=gbit_per_s(item.bandwidth_gbit_per_s))


def _link(source: str, target: str, rate: _Rate) -> Link:
    return Link(source=source, target=target, latency_s=rate.latency_s, bandwidth_bytes_per_s=rate.bandwidth_bytes_per_s,
                provenance=rate.provenance)
