"""A group cut anew: some orders, depths, degrees and arrangements are tried, and the best is kept."""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import INFERENCE, ROLLOUT, TRAINING, Ints, Tables
from stages.schedule.cost.kernel.jit import copy, inner
from stages.schedule.cost.kernel.layout import mean_rank_bytes
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.search.auto.arrays import (
    COLUMN,
    DEGREES,
    DP,
    FIRST,
    FIXED_DP,
    FIXED_PP,
    LAYERS,
    MICRO,
    MINI_BATCH,
    MOST_MICRO,
    ORDERS,
    PP,
    ROLLOUTS,
    SHARDS,
    SIZE,
    TP,
    Bench,
    Rules,
    State,
    Words,
)
from stages.schedule.search.auto.kernel_moves import fit_shards, largest_dp
from stages.schedule.search.auto.kernel_plan import IMPOSSIBLE, below, fits, floor_cost, mask_at, price_models, price_rollout_of

ORDERS_TRIED, SHAPES_TRIED = 2, 4
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)
TIE = 1e-3
"""Weight of a group's own seconds, where another group's are the plan's."""
TOO_FULL = 1.4
"""Mean rank's need over mean device's memory above which a cut is not tried."""
TOO_EMPTY = 0.25
"""The same below which a cut is not tried in a sweep once another fits: it is in more pieces than need be."""
FEW_SHARDS, MANY_SHARDS = 2, 8
"""Shards of a rollout replica that a cut's memory is estimated with."""


@inner
def in_order(rl: Rules, st: State, flag: Ints, group: int, which: int) -> None:
    """Deal a group's devices in one of the orders worth trying. ``flag`` is all zeros, and left so."""
    n, size = 0, st.meta[group, SIZE]
    for x in range(size):
        flag[st.order[group, x]] = 1
    for x in range(rl.devices.shape[1]):
        d = rl.devices[ORDERS + which, x]
        if flag[d] == 1:
            st.order[group, n] = d
            flag[d] = 0
            n += 1


@inner
def fill_shape(rl: Rules, mask: int, size: int, shape: Ints, depth: int) -> bool:
    """Stages and replicas for the shards in ``shape``, all devices used; False where there are none."""
    units = size // shape[TP]
    most = min(units, rl.masks[mask, LAYERS])
    if most < 1:
        return False
    shape[PP] = rl.masks[mask, FIXED_PP] if rl.masks[mask, FIXED_PP] else max(1, min(depth, most))
    fixed = rl.masks[mask, FIXED_DP]
    shape[DP] = fixed if fixed else largest_dp(rl, min(units // shape[PP], rl.misc[MINI_BATCH]))
    return shape[DP] > 0 and shape[DP] * shape[PP] <= units


@inner
def drawn_shape(rl: Rules, mask: int, size: int, near: Ints, shape: Ints, random: Words, first: bool) -> bool:
    """Replicas, stages and shards near those of the cut ``near`` (``first``: the same)."""
    shape[TP] = max(1, near[TP])
    if (not first and below(random, 3) == 0) or rl.masks[mask, DEGREES] == 1:
        shape[TP] = rl.masks[mask, FIRST + below(random, rl.masks[mask, DEGREES])]
    most = max(1, min(size // shape[TP], rl.masks[mask, LAYERS]))
    depth = near[PP] if first else near[PP] - 3 + below(random, 7) if below(random, 2) else 1 + below(random, most)
    return fill_shape(rl, mask, size, shape, depth)  # type: ignore[no-any-return]


@inner
def listed_shape(rl: Rules, mask: int, size: int, shape: Ints, number: int) -> bool:
    """The ``number``-th of all shapes: degrees that are powers of two (or any, where there is one only), the listed depths."""
    degree, depth = rl.masks[mask, FIRST + number // len(DEPTHS)], DEPTHS[number % len(DEPTHS)]
    shape[TP] = degree
    if (degree & (degree - 1) and rl.masks[mask, DEGREES] > 1) or (rl.masks[mask, FIXED_PP] and depth > 1):
        return False
    return fill_shape(rl, mask, size, shape, depth) and (shape[PP] == depth or rl.masks[mask, FIXED_PP] > 0)


@inner
def cut_anew(tb: Tables, rl: Rules, b: Bench, group: int, sweep: bool) -> int:
    """The best of some cuts of a group's devices; how many were priced. 0: none can be made.

    ``sweep``: all listed shapes in the present order, rollout priced with each. Else a few drawn near the present cut, in the present order
    and another, judged by training and inference beside the other groups as they are.
    """
    st, random, mask = b.state, b.random, mask_at(b.state, group)
    cut, size = st.meta[group], st.meta[group, SIZE]
    shape, near, best_cut, best_order = b.scratch[1], b.scratch[2], b.scratch[4], b.scratch[5]
    best, priced, room = IMPOSSIBLE, 0, 0.0
    rollout = rl.masks[mask, ROLLOUTS] > 0
    shards = 0 if not rollout else MANY_SHARDS if sweep else FEW_SHARDS
    copy(cut, near, SHARDS + 1)
    for x in range(size):
        room += tb.dev[st.order[group, x]].usable / size
    if mask == 0:
        priced = 1
    elif rl.masks[mask, LAYERS] == 0:
        if not sweep:
            in_order(rl, st, b.scratch[3], group, below(random, rl.devices.shape[0] - ORDERS))
        for c in range(SHARDS):
            cut[c] = 0
        while cut[SHARDS] > size:
            cut[SHARDS] //= 2
        priced = 1 if cut[SHARDS] > 0 else 0
    else:
        for trial in range(rl.masks[mask, DEGREES] * len(DEPTHS) if sweep else ORDERS_TRIED * SHAPES_TRIED):
            if not sweep and trial == SHAPES_TRIED:
                in_order(rl, st, b.scratch[3], group, below(random, rl.devices.shape[0] - ORDERS))
            shaped = False
            if sweep:
                shaped = listed_shape(rl, mask, size, shape, trial)
            else:
                shaped = drawn_shape(rl, mask, size, near, shape, random, trial % SHAPES_TRIED == 0)
            if shaped:
                dp, pp, tp = shape[DP], shape[PP], shape[TP]
                micro = rl.misc[MOST_MICRO]
                need = mean_rank_bytes(tb, b.flat, group, dp, pp, tp, micro, shards)
                while micro > 1 and need > room:
                    micro //= 2
                    need = mean_rank_bytes(tb, b.flat, group, dp, pp, tp, micro, shards)
                idle = sweep and best < UNUSABLE_S and need < TOO_EMPTY * room
                for column in range(0 if idle or need > TOO_FULL * room else 2 if pp > 1 and dp > 1 else 1):
                    cut[DP], cut[PP], cut[TP], cut[MICRO], cut[COLUMN], cut[SHARDS] = dp, pp, tp, micro, column, max(near[SHARDS], 1)
                    fit_shards(rl, mask, cut)
                    going = True
                    while going:
                        priced += 1
                        going = price_models(tb, rl, b, group)
                        if going:
                            cost = floor_cost(tb, b)
                            if sweep and rollout and cost < best:
                                going = price_rollout_of(tb, rl, b, group)
                                cost = floor_cost(tb, b)
                            cost += TIE * (b.ledger.groups[group, INFERENCE] + b.ledger.groups[group, TRAINING])
                            if going and cost < best:
                                best = cost
                                copy(cut, best_cut, SHARDS + 1)
                                copy(st.order[group], best_order, size)
                            going = going and sweep and cost >= UNUSABLE_S and cut[MICRO] > 1
                            cut[MICRO] = cut[MICRO] // 2 if going else cut[MICRO]
        if best < IMPOSSIBLE:
            copy(best_cut, cut, SHARDS + 1)
            copy(best_order, st.order[group], size)
        else:
            priced = 0
    return priced


@inner
def cut_alone(tb: Tables, rl: Rules, b: Bench, mask: int) -> int:
    """The best cut of group 0's devices if it ran ``mask`` and nothing else existed, with the best degree of rollout; how many were priced.

    Its price stands in the ledger, its cost in ``b.sums``.
    """
    cut, best, last, priced = b.state.meta[0], IMPOSSIBLE, len(rl.masks) - 1, 1
    for c in range(SHARDS):
        cut[c] = 0
    cut[SHARDS] = rl.masks[last, FIRST] if rl.masks[mask, LAYERS] == 0 else MANY_SHARDS
    tried = cut_anew(tb, rl, b, 0, True)
    kept = b.scratch[4]
    copy(cut, kept, SHARDS + 1)
    if tried > 0:
        priced = tried
        made = price_models(tb, rl, b, 0)
        for x in range(rl.masks[last, DEGREES] if made and rl.masks[mask, ROLLOUTS] else 1):
            if rl.masks[mask, ROLLOUTS]:
                cut[SHARDS] = rl.masks[last, FIRST + x]
            if made and fits(rl, mask, cut):
                priced += 1
                b.ledger.groups[0, ROLLOUT] = 0.0
                if price_rollout_of(tb, rl, b, 0):
                    cost = floor_cost(tb, b)
                    if cost < best:
                        best = cost
                        copy(cut, kept, SHARDS + 1)
        copy(kept, cut, SHARDS + 1)
        if best < IMPOSSIBLE:
            made = price_models(tb, rl, b, 0) and price_rollout_of(tb, rl, b, 0)
    return priced
