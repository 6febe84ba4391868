"""Repeating a piece of work and saying how long it takes: warm-up, batches long enough to be timed, median, spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

MIN_SAMPLE_S = 2e-3
MIN_SAMPLES = 3
MAX_SAMPLES = 400


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median over samples, and the relative half-range of their central four fifths.

    The outer tenths are left out of the spread: one interruption in a thousand samples says nothing about the device.
    ``quick_s`` is the lower quartile, for what other programs can only make longer.
    """

    seconds: float
    quick_s: float
    spread: float
    samples: int

    @classmethod
    def of(cls, samples: list[float]) -> Timing:
        ordered = sorted(samples)
        median = statistics.median(ordered)
        cut = len(ordered) // 10
        spread = (ordered[-1 - cut] - ordered[cut]) / (2 * median)
        return cls(seconds=median, quick_s=ordered[len(ordered) // 4], spread=spread, samples=len(ordered))


def repeat(work: Callable[[int], None], clock: Callable[[], float], *, budget_s: float, least: int = MIN_SAMPLES) -> Timing:
    """Time ``work(n)``, which does the thing n times and returns when it is done.

    ``clock`` is what the duration is read from (wall, CPU time of this thread); ``budget_s`` is wall time. ``least`` samples
    are taken even where the budget is too small for them.
    """
    end = time.monotonic() + budget_s
    work(1)
    calls, took = 1, _sample(work, clock, 1)
    while took < MIN_SAMPLE_S and calls < 1 << 20:
        calls = calls * 2 if took <= 0 else max(calls + 1, min(calls * 8, round(calls * 1.25 * MIN_SAMPLE_S / took)))
        took = _sample(work, clock, calls)
    samples = [took / calls]
    while len(samples) < least or (time.monotonic() < end and len(samples) < MAX_SAMPLES):
        samples.append(_sample(work, clock, calls) / calls)
    return Timing.of(samples)


def _sample(work: Callable[[int], None], clock: Callable[[], float], calls: int) -> float:
    start = clock()
    work(calls)
    return max(clock() - start, 1e-9)
