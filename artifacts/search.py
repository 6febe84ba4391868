"""How the plan was found."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from artifacts.base import Bytes, Document, Seconds, Strict


class Point(Strict):
    """The best cost known after so many evaluations and seconds."""

    evaluations: int = Field(ge=0)
    seconds: Seconds
    cost_s: Seconds


class Arm(Strict):
    """One arm of the halving: what it was, what it was given, what it reached (None: nothing feasible)."""

    name: str
    evaluations: int = Field(ge=0)
    best_s: Seconds | None = None
    rounds: int = Field(default=0, ge=0)


class Operator(Strict):
    name: str
    tried: int = Field(ge=0)
    improved: int = Field(ge=0)


class Level(Strict):
    """One level of decisions: how many plans there are when the levels up to this one are decided. Counts may have hundreds of digits."""

    name: str
    count: str = Field(description="decimal digits; empty where it was not computed")
    log10: float = Field(ge=0)
    exact: bool = True


class FrontPoint(Strict):
    """A plan that no other plan found beats in both throughput and cost."""

    throughput_samples_per_s: float = Field(gt=0)
    iteration_time_s: Seconds
    cost_per_sample: float = Field(ge=0, description="in the inventory's currency; idle devices are not paid for")
    devices: dict[str, int] = Field(description="device class → devices used")
    chosen: bool = False


class Moves(Strict):
    """What the plan changes against the plan in force. A tasklet is a rank of a task: a stage and a shard of its model on a device."""

    tasklets: int = Field(ge=0, description="of the new plan, over all tasks")
    moved: int = Field(ge=0, description="of these, those whose device did not hold that stage and shard under the plan in force")
    fetch_bytes: Bytes = Field(description="weights, and optimizer state of trained tasks, that devices do not hold yet")
    moving_s: Seconds = Field(description="to fetch them over the links they come by")
    stays_s: Seconds | None = Field(default=None, description="an iteration of the plan in force as it is, on this fleet; None: it cannot")
    horizon_iterations: int | None = Field(
        default=None, description="moving_s over this many iterations was part of the objective; None: moving was free"
    )
    fastest_s: Seconds | None = Field(default=None, description="an iteration of the fastest plan found, where moving was not free")
    fastest_moved: int | None = Field(default=None, ge=0, description="tasklets that plan would move")


class Search(Document):
    """Trajectory and accounting of a search."""

    artifact: ClassVar[str] = "search"
    volatile: ClassVar[frozenset[str]] = frozenset({"seconds", "cpu_seconds", "trajectory"})

    solver: str
    status: str = Field(description="optimal, feasible, interrupted")
    seed: int
    evaluations: int = Field(ge=0)
    seconds: Seconds
    cpu_seconds: Seconds = Field(default=0.0, description="of the processor, all threads, without what is compiled or loaded before")
    trajectory: list[Point] = Field(default_factory=list)
    arms: list[Arm] = Field(default_factory=list)
    operators: list[Operator] = Field(default_factory=list)
    proved_bound_s: Seconds | None = Field(default=None, description="no plan in the proof's scope is faster")
    proof_scope: str = Field(default="", description="which plans the proof is about: all, or those the solver's inner method makes")
    front: list[FrontPoint] = Field(default_factory=list, description="throughput against cost, fastest first; empty without prices")
    moves: Moves | None = Field(default=None, description="against the plan in force; None: there is none to compare with")
    space: list[Level] = Field(default_factory=list, description="size of the search space, where asked for")
