"""How the plan was found."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from artifacts.base import Document, Seconds, Strict


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


class Search(Document):
    """Trajectory and accounting of a search."""

    artifact: ClassVar[str] = "search"
    volatile: ClassVar[frozenset[str]] = frozenset({"seconds", "trajectory"})

    solver: str
    status: str = Field(description="optimal, feasible, interrupted")
    seed: int
    evaluations: int = Field(ge=0)
    seconds: Seconds
    trajectory: list[Point] = Field(default_factory=list)
    arms: list[Arm] = Field(default_factory=list)
    operators: list[Operator] = Field(default_factory=list)
