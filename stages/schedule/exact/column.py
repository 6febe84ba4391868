"""A column: a group that a plan may have, with all that its place in a plan depends on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.schedule.draft import GroupDraft
from stages.schedule.exact.cells import Vector
from stages.schedule.exact.floors import Floats

Footprint = tuple[tuple[int, int], ...] | int
"""What a weight update between two groups depends on, beside their devices: of each stage of the actor the machines that hold its first
shards (bits) and its layers; rollout's tensor-parallel degree. 0 for a group that has both or neither."""


@dataclass(frozen=True, eq=False)
class Column:
    """A group that a plan may have: its seconds of rollout, inference and training, what it takes, what the weight update sees of it."""

    draft: GroupDraft
    vector: Vector
    seconds: tuple[float, float, float]
    update_s: float
    """Of the weight update, where both its ends are in the group; else 0."""
    footprint: Footprint
    host: tuple[float, ...] = ()
    """Bytes of each machine's own memory; empty: none."""

    def needs(self, synchronous: bool) -> tuple[float, ...]:
        """What another column of the same tasks, devices and footprint must not exceed to be as good in every plan."""
        return (*comparable(np.array([*self.seconds, self.update_s]), synchronous).tolist(), *self.host)


def comparable(seconds: Floats, synchronous: bool) -> Floats:
    """``[..., 4]`` seconds of the phases and of the group's own weight update as what they are worth: in synchronous mode the update comes
    after the rollout as if it were a part of it, ``[..., 3]``.
    """
    if not synchronous:
        return seconds
    return np.concatenate([seconds[..., :1] + seconds[..., 3:], seconds[..., 1:3]], axis=-1)
