"""What the cost model expects of a plan: times by task and term, memory by device and term, bounds."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from artifacts.base import Bytes, Document, Name, Seconds, Strict
from artifacts.job import TaskName
from artifacts.topology import Provenance


class TaskTime(Strict):
    """Time of one task in one iteration; ``terms`` add up to what the critical replica spends (overlap aside)."""

    time_s: Seconds
    start_s: Seconds = 0.0
    terms: dict[str, Seconds] = Field(default_factory=dict, description="compute, hbm, tp, pp, dp, bubble, optimizer, reshard …")


class DeviceMemory(Strict):
    """Peak memory of one device. Constraint: Σ resident + max working ≤ capacity·(1 − reserve)."""

    capacity_bytes: Bytes
    usable_bytes: Bytes
    resident: dict[str, Bytes] = Field(default_factory=dict, description="task.term → bytes held all the time")
    working: dict[str, Bytes] = Field(default_factory=dict, description="task → bytes while it runs")

    @property
    def peak_bytes(self) -> int:
        return sum(self.resident.values()) + max(self.working.values(), default=0)


class Prediction(Document):
    """Priced plan."""

    artifact: ClassVar[str] = "prediction"

    plan: str = Field(description="identity of the plan")
    fidelity: Literal["paper", "calibrated"]
    iteration_time_s: Seconds
    throughput_samples_per_s: float = Field(ge=0)
    tasks: dict[TaskName, TaskTime]
    other_s: dict[str, Seconds] = Field(default_factory=dict, description="what is no task: weight synchronisation, reshard")
    memory: dict[Name, DeviceMemory] = Field(default_factory=dict)
    bound_s: Seconds = Field(description="roofline of the ideal cluster: no plan can be faster; 0: the fidelity has none")
    proved_bound_s: Seconds | None = None
    provenance: dict[str, Provenance] = Field(default_factory=dict)
    sensitivity: dict[str, float] = Field(
        default_factory=dict, description="input → relative change of the iteration time when it is a tenth higher, the strongest first"
    )
    calibration: str = Field(default="", description="version of the calibration that was applied")
    paper_s: dict[str, Seconds] = Field(
        default_factory=dict,
        description="the same plan by the published formulas: task → seconds, and ``iteration``; empty where they are the prediction",
    )

    @property
    def gap(self) -> float:
        """How far above the best bound, relative: 0 is perfect."""
        bound = max(self.bound_s, self.proved_bound_s or 0.0)
        return self.iteration_time_s / bound - 1 if bound > 0 else float("inf")
