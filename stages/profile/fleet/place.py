"""The devices of a fleet: their ids, which they keep from profile to profile, and who of them is slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.profile.assemble import device_class, saturated_flops
from stages.profile.devices.found import FoundDevice, Placed
from stages.profile.fleet.findings import Findings, Rated
from stages.profile.stragglers import find_stragglers


def placed_devices(findings: Findings) -> list[Placed]:
    """CPU devices have the ids their node declares, all others ``<machine>.<kind>-<index>``."""
    placed = []
    for name, looked in findings.looked.items():
        declared = findings.nodes[name].devices
        for fields in looked.devices:
            device = FoundDevice.of(fields)
            own = declared[device.index] if device.vendor == "cpu" and device.index < len(declared) else f"{name}.{device.id}"
            placed.append(Placed(own, name, device))
    return placed


def answers_of(findings: Findings, rated: Mapping[str, Rated]) -> dict[str, dict[str, Any]]:
    """Device id → what its probe answered."""
    found = {}
    for placed in placed_devices(findings):
        answers = rated[placed.machine].answers if placed.machine in rated else {}
        if str(placed.device.index) in answers:
            found[placed.id] = answers[str(placed.device.index)]
    return found


def slow_devices(findings: Findings, rated: Mapping[str, Rated]) -> dict[str, float]:
    """Device id → part of its class's median rate, for those far below it."""
    classes = {p.id: device_class(p.device) for p in placed_devices(findings)}
    return find_stragglers((device, classes[device], saturated_flops(answer)) for device, answer in answers_of(findings, rated).items())


def stragglers(findings: Findings) -> dict[str, float]:
    """Those that were slow at the first look, and at the second where there was one."""
    slow = slow_devices(findings, findings.first)
    if not any(r.again for r in findings.rated.values()):
        return slow
    return {device: part for device, part in slow_devices(findings, findings.rated).items() if device in slow}
