"""Pricing many layouts of one group in compiled code: every order of its devices with every cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.schedule.cost.kernel.arrays import Flat, Floats, Ints, Ledger, Tables
from stages.schedule.cost.kernel.jit import entry
from stages.schedule.cost.kernel.layout import lay_out_group
from stages.schedule.cost.kernel.price import price_group
from stages.schedule.cost.tables import compiled
from stages.schedule.draft import Cut
from stages.schedule.problem import Problem


@entry
def sweep_kernel(tb: Tables, fp: Flat, lg: Ledger, orders: Ints, cuts: Ints, found: Floats) -> None:
    """``orders`` ``[O, n]`` devices, ``cuts`` ``[K, 6]`` (dp, pp, tp, micro, column, rollout tp), ``found`` ``[O, K, 4]``: seconds of
    rollout, inference and training, and the lack of memory; infinite where nothing can be laid out.
    """
    count = orders.shape[1]
    for o in range(orders.shape[0]):
        for k in range(cuts.shape[0]):
            dp, pp, tp, most, column, rollout_tp = cuts[k, 0], cuts[k, 1], cuts[k, 2], cuts[k, 3], cuts[k, 4], cuts[k, 5]
            if lay_out_group(tb, fp, lg, 0, orders[o], count, dp, pp, tp, most, column == 1, rollout_tp):
                price_group(tb, fp, lg, 0)
                for x in range(4):
                    found[o, k, x] = lg.groups[0, x]
            else:
                for x in range(4):
                    found[o, k, x] = np.inf


def sweep(problem: Problem, tasks: tuple[str, ...], orders: Sequence[tuple[int, ...]], cuts: Sequence[tuple[Cut | None, int]]) -> Floats:
    """``[orders, cuts, 4]`` as :func:`sweep_kernel` says."""
    kernel = compiled(problem)
    kernel.flat.row["group"] = [0 if t.name in tasks else -1 for t in problem.tasks]
    numbers = [(c.dp, c.pp, c.tp, c.micro, int(c.column), tp) if c else (0, 0, 0, 0, 0, tp) for c, tp in cuts]
    found = np.empty((len(orders), len(cuts), 4))
    sweep_kernel(
        kernel.tables,
        kernel.flat,
        kernel.ledger,
        np.array(orders, dtype=np.int64),
        np.array(numbers, dtype=np.int64).reshape(-1, 6),
        found,
    )
    return found
