"""Efficiency factors fitted from measurements, used by the next schedule."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import ClassVar

from pydantic import Field

from artifacts.base import Document, Strict

CALLS_BESIDE = 2
"""Old log-probabilities and weight update: calls of an iteration that are no task of a plan."""


def calls_of(tasks: int) -> int:
    """What the driver dispatches in an iteration of that many tasks."""
    return tasks + CALLS_BESIDE


class Factor(Strict):
    """Measured over predicted time of a task on a device class: multiply a predicted time by it."""

    device_class: str
    task: str
    factor: float = Field(gt=0, le=1e6)
    observations: int = Field(ge=1, description="iterations it was fitted on")
    spread: float = Field(default=0.0, ge=0, description="relative interquartile range in the latest run")
    evidence: float = Field(default=100.0, ge=0, description="inverse variance of the factor's logarithm, over all runs")


class Calibration(Document):
    """Made by validate. ``overhead_s`` is what an iteration takes beside its tasks: the driver's work to dispatch each of its calls."""

    artifact: ClassVar[str] = "calibration"

    factors: list[Factor]
    overhead_s: float = Field(default=0.0, ge=0)
    overhead_calls: int = Field(default=0, ge=0, description="calls of the iteration ``overhead_s`` is of; 0: not known")
    runs: int = Field(ge=1)
    notes: list[str] = Field(default_factory=list)

    def overhead(self, *, tasks: int) -> float:
        """Seconds beside the tasks of an iteration of a job with that many: each call takes the driver alike."""
        return self.overhead_s * (calls_of(tasks) / self.overhead_calls if self.overhead_calls else 1.0)

    def factor(self, *, task: str, device_class: str, alike: Collection[str] = ()) -> float:
        """The factor for a task on a class. Where it was not seen there, the mean (of logarithms, by evidence) of what it showed on the
        classes ``alike``: else a class nobody measured would look fast beside those found to be slower than thought. 1 without any.
        """
        known = self.known(task=task, device_class=device_class)
        if known:
            return known.factor
        seen = [f for f in self.factors if f.task == task and f.device_class in alike and f.evidence > 0]
        return math.exp(sum(f.evidence * math.log(f.factor) for f in seen) / sum(f.evidence for f in seen)) if seen else 1.0

    def known(self, *, task: str, device_class: str) -> Factor | None:
        """What was learned of a task on a class."""
        return next((f for f in self.factors if f.task == task and f.device_class == device_class), None)
