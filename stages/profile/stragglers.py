"""Devices far slower than the others of their class."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

STRAGGLER_PART = 0.7
"""A device below this part of its class's median rate is a straggler."""


def find_stragglers(rates: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Device id → part of its class's median rate, for those below ``STRAGGLER_PART``. ``rates``: (device id, class, rate)."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for device, device_class, rate in rates:
        groups[device_class][device] = rate
    found = {}
    for group in groups.values():
        median = statistics.median(group.values())
        found.update({device: rate / median for device, rate in group.items() if rate < STRAGGLER_PART * median})
    return found
