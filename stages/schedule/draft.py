"""What the search varies: which tasks share which devices, in which order, cut how. Small, hashable, immutable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """How a group's devices are cut for its training and inference tasks.

    ``micro`` bounds the sequences of one forward pass. ``column``: consecutive units form a stage (replicas side by side, their rings
    local) instead of a pipeline.
    """

    dp: int
    pp: int
    tp: int
    micro: int
    column: bool = False

    @property
    def ranks(self) -> int:
        return self.dp * self.pp * self.tp


@dataclass(frozen=True)
class GroupDraft:
    """Tasks that share ``devices`` (indices into the fleet, in the order in which ranks are dealt).

    ``cut`` is None where only rollout runs; ``rollout_tp`` is 0 where no rollout runs.
    """

    tasks: tuple[str, ...]
    devices: tuple[int, ...]
    cut: Cut | None
    rollout_tp: int = 0


@dataclass(frozen=True)
class Draft:
    """A candidate plan: disjoint groups over the fleet; devices in no group stay idle."""

    groups: tuple[GroupDraft, ...]

    @property
    def used(self) -> frozenset[int]:
        return frozenset(d for g in self.groups for d in g.devices)


@dataclass(frozen=True, eq=False)
class Layout:
    """One task laid out. ``ranks`` is ``[dp, pp, tp]`` device indices.
    ``local`` sequences of the global batch by replica; ``micro`` sequences of one forward pass by replica, ``micro_batches`` of them in
    each mini-batch, equal on all replicas.
    """

    ranks: Ints
    layers: tuple[int, ...]
    local: tuple[int, ...]
    micro: tuple[int, ...]
    micro_batches: int

    @property
    def dp(self) -> int:
        return int(self.ranks.shape[0])

    @property
    def pp(self) -> int:
        return int(self.ranks.shape[1])

    @property
    def tp(self) -> int:
        return int(self.ranks.shape[2])

    def devices(self) -> list[int]:
        return [int(d) for d in self.ranks.ravel()]


def unit_count(devices: tuple[int, ...], tp: int) -> int:
    """Tensor-parallel units these devices make: inside machines first, the leftovers across them, so that no unit is lost."""
    return len(devices) // tp
