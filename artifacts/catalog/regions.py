"""Delays between cloud regions, as measured, from ``regions.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import fmean

from pydantic import Field

from artifacts.base import Rate, Strict
from artifacts.catalog import load_yaml


class MeasuredDelay(Strict):
    """Round trips between two regions, one a direction where both were measured. ``stand_in``: what was measured in their place."""

    between: list[str] = Field(min_length=2, max_length=2)
    rtt_ms: list[Rate] = Field(min_length=1, max_length=2)
    source: str = Field(min_length=1)
    stand_in: str = ""


class RegionData(Strict):
    measured: list[MeasuredDelay]
    hubs: dict[str, list[str]]


@dataclass(frozen=True)
class Delay:
    """One way, in ms. ``notes`` name what stands in for a measurement; empty: measured between these two regions."""

    one_way_ms: float
    notes: tuple[str, ...] = ()


@cache
def region_data() -> RegionData:
    return RegionData.model_validate(load_yaml("regions.yaml"))


def delay_between(a: str, b: str) -> Delay:
    """Half the mean round trip; without a measurement, the shortest way over the hubs of either region.

    Raises ``KeyError`` where there is neither.
    """
    for entry in region_data().measured:
        if set(entry.between) == {a, b}:
            return Delay(fmean(entry.rtt_ms) / 2, (entry.stand_in,) if entry.stand_in else ())
    hubs = region_data().hubs
    ways = [_over(x, hub, y) for x, y in ((a, b), (b, a)) for hub in hubs.get(x, []) if hub != y]
    if not ways:
        raise KeyError(f"no delay between {a} and {b}")
    return min(ways, key=lambda way: way.one_way_ms)


def _over(a: str, hub: str, b: str) -> Delay:
    first, second = delay_between(a, hub), delay_between(hub, b)
    notes = (*first.notes, *second.notes, f"{a} to {b}: not measured, taken over {hub}")
    return Delay(first.one_way_ms + second.one_way_ms, tuple(dict.fromkeys(notes)))
