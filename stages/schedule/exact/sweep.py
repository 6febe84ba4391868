"""Pricing many layouts of one group in compiled code: every order of its devices with every cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.kernel.arrays import OVERFLOW, Flat, Floats, Ints, Ledger, Tables
from stages.schedule.cost.kernel.jit import entry, inner
from stages.schedule.cost.kernel.layout import lay_out_group, lay_out_models
from stages.schedule.cost.kernel.price import reprice_group
from stages.schedule.cost.kernel.reshard import weight_update
from stages.schedule.cost.tables import compiled
from stages.schedule.draft import Cut
from stages.schedule.problem import Problem

MOST_MACHINES = 62
"""A set of machines is the bits of one integer."""
UPDATE = OVERFLOW + 1


@dataclass(frozen=True, eq=False)
class Swept:
    """``values`` ``[O, K, 5]``: seconds of rollout, inference and training, lack of memory, seconds of the weight update (0 but where the
    group has both its ends); infinite where nothing was laid out. ``holders`` ``[O, K, S, 2]``: of each stage of the actor, where rollout
    is elsewhere, the machines that hold its first shards (bits) and its layers.
    """

    values: Floats
    holders: NDArray[np.int64]


@inner
def models_are_hopeful(
    tb: Tables,
    fp: Flat,
    lg: Ledger,
    devices: Ints,
    count: int,
    dp: int,
    pp: int,
    tp: int,
    most: int,
    column: bool,
    rollout_tp: int,
    least: Floats,
    cutoff_s: float,
) -> bool:
    """Whether a group's models by themselves fit, and leave its rollout the least time it needs. They are laid out as beside it."""
    rollout = tb.job[0].rollout
    if not lay_out_models(tb, fp, lg, 0, devices, count, dp, pp, tp, most, column, rollout_tp):
        return False
    fp.row[rollout].group = -1
    reprice_group(tb, fp, lg, 0, -1)
    fp.row[rollout].group = 0
    rest = max(least[1], lg.groups[0, 1]) + max(least[2], lg.groups[0, 2])
    alone = max(least[0], rest) if tb.job[0].asynchronous else least[0] + rest
    return alone + tb.job[0].overhead <= cutoff_s and lg.groups[0, OVERFLOW] <= 0.0


@entry
def sweep_kernel(
    tb: Tables,
    fp: Flat,
    lg: Ledger,
    orders: Ints,
    cuts: Ints,
    every: Ints,
    both: bool,
    least: Floats,
    cutoff_s: float,
    values: Floats,
    holders: Ints,
) -> None:
    """``orders`` ``[O, n]`` devices, ``cuts`` ``[K, 6]`` (dp, pp, tp, micro, column, rollout tp); orders after the first only for cuts
    whose ``every`` ``[K]`` is 1. ``both``: the group has the actor and its rollout. ``least`` ``[3]`` seconds of each phase whatever the
    layout: where with them the group's other tasks end after ``cutoff_s``, or do not fit, its rollout is not laid out.
    """
    actor = tb.job[0].actor
    for o in range(orders.shape[0]):
        for k in range(cuts.shape[0]):
            dp, pp, tp, most, column, rollout_tp = cuts[k, 0], cuts[k, 1], cuts[k, 2], cuts[k, 3], cuts[k, 4], cuts[k, 5]
            wanted = o == 0 or every[k] == 1
            if wanted and both:
                count = orders.shape[1]
                wanted = models_are_hopeful(tb, fp, lg, orders[o], count, dp, pp, tp, most, column == 1, rollout_tp, least, cutoff_s)
            if wanted and lay_out_group(tb, fp, lg, 0, orders[o], orders.shape[1], dp, pp, tp, most, column == 1, rollout_tp):
                reprice_group(tb, fp, lg, 0, -1)
                for x in range(OVERFLOW + 1):
                    values[o, k, x] = lg.groups[0, x]
                values[o, k, UPDATE] = weight_update(tb, fp, lg) if both else 0.0
                if holders.shape[2]:
                    for j in range(pp):
                        for i in range(dp):
                            holders[o, k, j, 0] |= 1 << tb.dev[fp.ranks[actor, (i * pp + j) * tp]].machine
                        holders[o, k, j, 1] = fp.split[actor, j]
            else:
                for x in range(UPDATE + 1):
                    values[o, k, x] = np.inf


def sweep(
    problem: Problem,
    tasks: tuple[str, ...],
    orders: Sequence[tuple[int, ...]],
    cuts: Sequence[tuple[Cut | None, int]],
    every: Sequence[bool],
    *,
    least: Sequence[float],
    cutoff_s: float,
) -> Swept:
    """Price ``tasks`` on each order of devices with each (cut, rollout's tp); see :func:`sweep_kernel`."""
    kernel = compiled(problem)
    kernel.flat.row["group"] = [0 if t.name in tasks else -1 for t in problem.tasks]
    both = {"rollout", "actor_training"} <= set(tasks)
    stages = max((c.pp for c, _ in cuts if c), default=0) if "actor_training" in tasks and not both else 0
    numbers = [(c.dp, c.pp, c.tp, c.micro, int(c.column), tp) if c else (0, 0, 0, 0, 0, tp) for c, tp in cuts]
    values = np.empty((len(orders), len(cuts), UPDATE + 1))
    holders = np.zeros((len(orders), len(cuts), stages, 2), dtype=np.int64)
    sweep_kernel(
        kernel.tables,
        kernel.flat,
        kernel.ledger,
        np.array(orders, dtype=np.int64),
        np.array(numbers, dtype=np.int64).reshape(-1, 6),
        np.array(every, dtype=np.int64),
        both,
        np.array(least, dtype=float),
        cutoff_s,
        values,
        holders,
    )
    return Swept(values, holders)
