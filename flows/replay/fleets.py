"""The fleets of the experiments, as parameters of the profile stage: the published settings, parts of the testbed, small mixed fleets."""

from __future__ import annotations

from typing import Any

import yaml

SETTINGS = ("single-region", "multi-region-hybrid", "multi-country", "multi-continent")
ALL_GPUS = "single-region"
A100_ALONE = "24 A100"
COMBINATIONS: dict[str, dict[str, int]] = {
    A100_ALONE: {"A100": 24},
    "24 A100 + 24 L40S": {"A100": 24, "L40S": 24},
    "24 A100 + 16 L4": {"A100": 24, "L4": 16},
}
"""Parts of the testbed in a single region, machines of eight; all of it is the setting single-region."""
SMALL: dict[str, tuple[tuple[str, int, str], ...]] = {
    "12 GPUs, one region": (("A100", 4, "virginia"), ("L40S", 4, "virginia"), ("L4", 4, "virginia")),
    "16 GPUs, two regions": (("A100", 8, "virginia"), ("L40S", 8, "ohio")),
    "20 GPUs, two regions": (("A100", 8, "virginia"), ("L40S", 8, "ohio"), ("L4", 4, "virginia")),
    "24 GPUs, one region": (("A100", 8, "virginia"), ("L40S", 8, "virginia"), ("L4", 8, "virginia")),
}
"""Machines (GPU, how many, region) small enough for the exact optimum."""
_HOST = {"A100": (144, 12), "L40S": (192, 24), "L4": (96, 24)}
"""Host memory (GiB) and CPUs a GPU, as in the published settings."""
_LOCAL = {"latency_ms": 0.05, "bandwidth_gbit_per_s": 100}
_BETWEEN = {"between": ["virginia", "ohio"], "latency_ms": 10, "bandwidth_gbit_per_s": 5}


def profile_parameters(fleet: str) -> dict[str, Any]:
    """Parameters of the profile stage for a fleet by its name here."""
    if fleet in SETTINGS:
        return {"cluster": {"kind": "scenario", "name": fleet}}
    if fleet in COMBINATIONS:
        machines = tuple((gpu, 8, "virginia") for gpu, count in COMBINATIONS[fleet].items() for _ in range(count // 8))
    else:
        machines = SMALL[fleet]
    return {"cluster": {"kind": "inventory", "text": _inventory(fleet, machines), "where": fleet}}


def _inventory(fleet: str, machines: tuple[tuple[str, int, str], ...]) -> str:
    listed = [
        {"name": f"{gpu.lower()}-{number}", "region": region, "gpus": [{"gpu": f"HetRL-{gpu}", "count": count}],
         "host_memory_gib": _HOST[gpu][0] * count, "cpus": _HOST[gpu][1] * count}
        for number, (gpu, count, region) in enumerate(machines)
    ]
    links = {"same_zone": _LOCAL} | ({"regions": [_BETWEEN]} if len({region for *_, region in machines}) > 1 else {})
    name = "".join(c if c.isalnum() else "-" for c in fleet)
    return yaml.safe_dump({"name": name, "reconstructed": True, "machines": listed, "links": links}, sort_keys=False)
