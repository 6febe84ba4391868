"""Ranks dealt from ordered devices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.schedule.draft import Cut

Ints = NDArray[np.int64]


def units_of(devices: tuple[int, ...], machine: Ints, tp: int) -> list[tuple[int, ...]]:
    """Cut devices into tensor-parallel units: inside machines first, in order; leftovers form units across machines."""
    if tp == 1:
        return [(d,) for d in devices]
    waiting: dict[int, list[int]] = {}
    units: list[tuple[int, ...]] = []
    for device in devices:
        here = waiting.setdefault(int(machine[device]), [])
        here.append(device)
        if len(here) == tp:
            units.append(tuple(here))
            here.clear()
    rest = [d for members in waiting.values() for d in members]
    units += [tuple(rest[i : i + tp]) for i in range(0, len(rest) - tp + 1, tp)]
    return units


def deal_ranks(devices: tuple[int, ...], machine: Ints, cut: Cut) -> Ints | None:
    """``[dp, pp, tp]`` ranks of a cut over ordered devices, or None where the devices do not suffice."""
    units = units_of(devices, machine, cut.tp)
    need = cut.dp * cut.pp
    if len(units) < need:
        return None
    table = np.array(units[:need], dtype=np.int64)
    if cut.column:
        return table.reshape(cut.pp, cut.dp, cut.tp).transpose(1, 0, 2).copy()
    return table.reshape(cut.dp, cut.pp, cut.tp)
