"""What a request may set."""

from __future__ import annotations

from pydantic import Field

from artifacts.base import Strict


class TrainParameters(Strict):
    """Parameters of the train stage."""

    simulate_only: bool = Field(default=False, description="play the plan on the topology, described or measured; needs no deployment")
