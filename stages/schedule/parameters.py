"""What a request may set."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from artifacts.base import Strict

DEFAULT_EVALUATIONS = 4000


class ScheduleParameters(Strict):
    """Parameters of the schedule stage."""

    solver: Literal["auto", "sha-ea", "random"] = Field(default="auto", description="auto: sha-ea")
    evaluations: int = Field(
        default=DEFAULT_EVALUATIONS, ge=1, le=10**9, description="search budget; the same seed gives the same plan anywhere"
    )
    seconds: float | None = Field(default=None, gt=0, le=86_400, description="search budget in seconds instead")
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
