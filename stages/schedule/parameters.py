"""What a request may set."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from artifacts.base import Name, Strict

DEFAULT_EVALUATIONS = 20_000
AUTO_EACH, AUTO_MOST = 50_000, 1_000_000
"""Of ``auto``, whose evaluations cost a fifteenth of the others': for each device, and at most (8 to 15 s of a processor at 24 devices)."""

SolverName = Literal["auto", "sha-ea", "sha-ea-published", "exact", "ilp", "verl", "streamrl", "deap", "random"]
Operator = Literal["halving", "local-search", "balancing", "seeds"]


class ScheduleParameters(Strict):
    """Parameters of the schedule stage."""

    solver: SolverName = Field(default="auto", description="auto: the best there is")
    evaluations: int | None = Field(
        default=None, ge=1, le=10**9, description="search budget; the same seed gives the same plan anywhere; empty: what the solver needs"
    )
    seconds: float | None = Field(default=None, gt=0, le=86_400, description="search budget in seconds instead")
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    without: list[Operator] = Field(
        default_factory=list, description="parts of the search that are switched off, to see what each is worth (auto and sha-ea)"
    )
    prefer_stable: bool = Field(default=False, description="stay near the plan in force where moving does not pay")
    horizon_iterations: int = Field(default=100, ge=1, le=10**7, description="iterations that a move's seconds are spread over")
    workers: Literal["local", "ray"] = Field(default="local", description="ray: as many searches as workers, on the CPUs of a Ray cluster")
    ray_workers: int | None = Field(default=None, ge=1, le=4096, description="searches on the Ray cluster; empty: one for each of its CPUs")
    ray_address: str = Field(default="", max_length=300, description="host:port of the Ray cluster; empty: RAY_ADDRESS, or the one here")
    explain: bool = Field(default=False, description="count the search space level by level")
    stop_file: Name | None = Field(
        default=None, description="when this file appears in the work folder the search ends, and its best plan so far is the result"
    )
    price_only: bool = Field(default=False, description="price the plan among the inputs instead of searching for one")
    fidelity: Literal["calibrated", "paper"] = Field(default="calibrated", description="cost model that prices it")

    def budget(self, *, devices: int) -> int:
        """Evaluations on a fleet of that size."""
        if self.evaluations is not None:
            return self.evaluations
        return min(max(AUTO_EACH * devices, DEFAULT_EVALUATIONS), AUTO_MOST) if self.solver == "auto" else DEFAULT_EVALUATIONS
