"""A worker of verl's that trains nothing: it says where it is."""

from __future__ import annotations

from typing import Any

from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register

from stages.train.engines.verl.placement import here

_modes: Any = Dispatch


class LightWorker(Worker):
    @register(dispatch_mode=_modes.ONE_TO_ALL)
    def place(self) -> dict[str, Any]:
        return {**here(), "rank": self.rank, "world": self.world_size}
