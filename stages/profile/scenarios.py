"""The four published network settings of the 64-GPU testbed, as inventories.

The matrices were never printed, only ranges. Reconstructed: one-way delay is half the measured round trip, bandwidth
min(5, 55 / one-way ms) Gbit/s, which meets the ranges printed (5 to 60 ms, 0.9 to 5 Gbit/s). What else is not printed is assumed and
said in the inventory's description: how GPUs are dealt over regions, the network inside one, which GPUs are at the edge.

    python -m stages.profile.scenarios multi-country > multi-country.yaml
"""

from __future__ import annotations

import sys
from itertools import combinations
from typing import Literal, get_args

import yaml

from artifacts.catalog.regions import delay_between
from artifacts.errors import InputError
from stages.profile.inventory.schema import GpuItem, Inventory, LinkItem, Links, MachineItem, PairItem

Scenario = Literal["single-region", "multi-region-hybrid", "multi-country", "multi-continent"]
SCENARIOS: tuple[str, ...] = get_args(Scenario)

EUROPE = ("Paris", "Stockholm", "London", "Ireland", "Spain", "Zurich", "Frankfurt", "Milan")
CONTINENTS = ("Virginia", "Ohio", "Paris", "Stockholm", "London", "Ireland", "Frankfurt", "Milan")
TESTBED = {"A100": 24, "L40S": 24, "L4": 16}
"""GPUs of each kind; host memory (GiB) and CPUs of a machine of eight are those of common cloud machines."""
_HOST_OF_EIGHT = {"A100": (1152, 96), "L40S": (1536, 192), "L4": (768, 192)}
_LOCAL = LinkItem(latency_ms=0.05, bandwidth_gbit_per_s=100)
HYBRID_DELAY_MS, HYBRID_GBIT_PER_S, EDGE_GBIT_PER_S = 10.0, 5.0, 1.0
EDGE_DELAY_MS = 5.0


def scenario_inventory(name: str) -> Inventory:
    """The inventory of a published setting. Raises :class:`InputError` naming those there are."""
    if name == "single-region":
        machines = [_machines(kind, kind.lower(), "Virginia", count // 8, 8) for kind, count in TESTBED.items()]
        return _inventory(name, "eight GPUs a machine and the network inside the region assumed", machines, Links(same_zone=_LOCAL))
    if name == "multi-region-hybrid":
        return _hybrid()
    if name == "multi-country":
        return _spread(name, EUROPE)
    if name == "multi-continent":
        return _spread(name, CONTINENTS)
    raise InputError(f"there is no scenario {name[:40]!r}", fix="use one of " + ", ".join(SCENARIOS))


def scenario_text(name: str) -> str:
    """The same as YAML, to read, keep or change."""
    data = scenario_inventory(name).model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=140)


def bandwidth_gbit_per_s(one_way_ms: float) -> float:
    """The rule that meets the printed ranges; see the module's text."""
    return min(5.0, 55.0 / one_way_ms)


def _spread(name: str, regions: tuple[str, ...]) -> Inventory:
    """Single GPUs, the same number of each kind in every region."""
    machines = [_machines(kind, f"{region.lower()}-{kind.lower()}", region, count // len(regions), 1)
                for region in regions for kind, count in TESTBED.items()]
    pairs: list[PairItem] = []
    notes: list[str] = []
    for a, b in combinations(regions, 2):
        delay = delay_between(a, b)
        notes += delay.notes
        pairs.append(PairItem(between=[a, b], latency_ms=round(delay.one_way_ms, 3),
                              bandwidth_gbit_per_s=round(bandwidth_gbit_per_s(delay.one_way_ms), 3)))
    said = ("delays are half the measured round trips, bandwidth min(5, 55 / one-way ms) Gbit/s to meet the printed ranges; single GPUs "
            "dealt evenly over eight regions (assumed); network inside a region assumed")
    return _inventory(name, "; ".join([said, *dict.fromkeys(notes)]), machines, Links(same_zone=_LOCAL, regions=pairs))


def _hybrid() -> Inventory:
    """Ohio and Virginia with half of the A100 and L40S each; the L4 at the edge, connected to Virginia only."""
    machines = [_machines(kind, f"{region.lower()}-{kind.lower()}", region, TESTBED[kind] // 2, 1)
                for region in ("Virginia", "Ohio") for kind in ("A100", "L40S")]
    edge = _machines("L4", "edge-l4", "Virginia", TESTBED["L4"], 1, zone="edge")
    to_edge = PairItem(between=["edge-l4", "edge-l4"], latency_ms=EDGE_DELAY_MS, bandwidth_gbit_per_s=EDGE_GBIT_PER_S)
    links = Links(
        same_zone=_LOCAL,
        same_region=LinkItem(latency_ms=EDGE_DELAY_MS, bandwidth_gbit_per_s=EDGE_GBIT_PER_S),
        regions=[PairItem(between=["Virginia", "Ohio"], latency_ms=HYBRID_DELAY_MS, bandwidth_gbit_per_s=HYBRID_GBIT_PER_S)],
        machines=[to_edge, *(PairItem(between=["edge-l4", m.name], connected=False) for m in machines if m.region == "Ohio")],
    )
    said = ("single GPUs, half of the A100 and L40S in each region, the L4 as the edge (all assumed); delay to the edge assumed "
            f"{EDGE_DELAY_MS:g} ms; network inside a region assumed")
    return _inventory("multi-region-hybrid", said, [*machines, edge], links)


def _machines(kind: str, name: str, region: str, count: int, gpus: int, *, zone: str = "") -> MachineItem:
    memory, cpus = _HOST_OF_EIGHT[kind]
    return MachineItem(name=name, count=count, gpus=[GpuItem(gpu=f"HetRL-{kind}", count=gpus)], region=region, zone=zone,
                       host_memory_gib=memory * gpus / 8, cpus=cpus * gpus // 8)


def _inventory(name: str, said: str, machines: list[MachineItem], links: Links) -> Inventory:
    return Inventory(name=name, description=f"reconstructed from the HetRL paper's scenario {name}: {said}", reconstructed=True,
                     machines=machines, links=links)


if __name__ == "__main__":
    try:
        print(scenario_text(sys.argv[1] if len(sys.argv) > 1 else ""), end="")
    except InputError as error:
        sys.exit(error.line)
