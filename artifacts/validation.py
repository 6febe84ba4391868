"""Predicted against measured."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from artifacts.base import Document, Seconds, Strict


class Row(Strict):
    """One task on one device class. ``error`` is (predicted − measured) / measured."""

    task: str
    device_class: str
    predicted_s: Seconds
    measured_s: Seconds = Field(description="median over the counted iterations")
    measured_spread: float = Field(default=0.0, ge=0, description="relative interquartile range")
    iterations: int = Field(ge=1)
    error: float
    paper_s: Seconds | None = Field(default=None, description="predicted by the published formulas; None where they have no such task")

    @property
    def paper_error(self) -> float | None:
        return None if self.paper_s is None else self.paper_s / self.measured_s - 1.0


class TrendPoint(Strict):
    """A run before this one."""

    version: str
    iteration_error: float
    median_abs_error: float


class Validation(Document):
    """Made by validate."""

    artifact: ClassVar[str] = "validation"
    volatile: ClassVar[frozenset[str]] = frozenset({"trend"})

    plan: str
    rows: list[Row]
    iteration: Row
    median_abs_error: float = Field(ge=0)
    trend: list[TrendPoint] = Field(default_factory=list)
    bound: float = Field(gt=0, description="the verdict's bound on |iteration error|")
    verdict: Literal["ok", "off"]
    suspect: str = Field(default="", description="the task or term most likely off")
    notes: list[str] = Field(default_factory=list)
    simulated: bool = False
