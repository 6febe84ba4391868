"""Moves of the local search: other order, other devices, other cut, other tasks. Each says which groups it touched, as bits; 0: none.

What a move leaves need not fit: the group's cut is then chosen anew.
"""

from __future__ import annotations

from stages.schedule.cost.kernel.jit import copy, inner
from stages.schedule.search.auto.arrays import (
    COLUMN,
    DEGREES,
    DP,
    FIRST,
    FIXED_DP,
    FIXED_PP,
    HOLDER,
    HOME,
    KIND,
    LAYERS,
    LEGAL,
    MICRO,
    MINI_BATCH,
    MOST_MICRO,
    PP,
    REGION,
    ROLLOUTS,
    SHARDS,
    SIZE,
    TP,
    WIDE,
    Ints,
    Rules,
    State,
    Words,
)
from stages.schedule.search.auto.kernel_plan import below, fits, keep_group, mask_at, uniform

TRIES = 8
ALL = 1 << 30


@inner
def any_group(st: State, random: Words) -> int:
    """A group that runs something."""
    g = below(random, len(st.meta) - 1)
    while st.meta[g, SIZE] == 0:
        g = below(random, len(st.meta) - 1)
    return g


@inner
def chunk(rl: Rules, random: Words, unit: int) -> int:
    """How many devices move at once."""
    if not rl.misc[WIDE]:
        way = below(random, 5 + 1)
        return 1 << way if way < 4 else max(unit, 1)
    way = below(random, 8)
    return 1 << way if way < 4 else ALL if way < 6 else max(unit, 1)


@inner
def level(rl: Rules, random: Words) -> int:
    """What moves together: devices of a home, more seldom of a kind or a region."""
    if not rl.misc[WIDE]:
        return HOME
    way = below(random, 4)
    return HOME if way < 2 else KIND if way == 2 else REGION


@inner
def largest_dp(rl: Rules, most: int) -> int:
    dp = min(most, len(rl.dps) - 1)
    while dp > 0 and not rl.dps[dp]:
        dp -= 1
    return dp


@inner
def fit_cut(rl: Rules, mask: int, cut: Ints) -> None:
    """As many replicas of the cut's shape as the group's devices allow."""
    shape = max(1, cut[PP] * cut[TP])
    if rl.masks[mask, LAYERS] and not rl.masks[mask, FIXED_DP]:
        cut[DP] = largest_dp(rl, min(cut[SIZE] // shape, rl.misc[MINI_BATCH]))
    fit_shards(rl, mask, cut)


@inner
def fit_shards(rl: Rules, mask: int, cut: Ints) -> None:
    """The largest degree of rollout up to the present one that divides the ranks."""
    if rl.masks[mask, ROLLOUTS] and rl.masks[mask, LAYERS]:
        ranks, best = cut[DP] * cut[PP] * cut[TP], 0
        for x in range(rl.masks[-1, DEGREES]):
            if ranks % rl.masks[-1, FIRST + x] == 0 and (rl.masks[-1, FIRST + x] <= cut[SHARDS] or best == 0):
                best = rl.masks[-1, FIRST + x]
        cut[SHARDS] = best
    elif not rl.masks[mask, ROLLOUTS]:
        cut[SHARDS] = 0


@inner
def reorder(rl: Rules, st: State, saved: State, scratch: Ints, random: Words) -> int:
    """Two devices of a group change places, or two stages do in all replicas, or a run of devices turns round or moves elsewhere."""
    g = any_group(st, random)
    n = st.meta[g, SIZE]
    if n < 2:
        return 0
    if rl.misc[WIDE] and st.meta[g, PP] > 1 and st.meta[g, DP] * st.meta[g, PP] * st.meta[g, TP] <= n and below(random, 5) == 0:
        keep_group(st, saved, g)
        i = below(random, st.meta[g, PP] - 1)
        swap_stages(st.order[g], st.meta[g], i, i + 1 + below(random, st.meta[g, PP] - 1 - i))
        return 1 << g
    for _ in range(TRIES):
        i, j = below(random, n), below(random, n)
        if i > j:
            i, j = j, i
        x, y = st.order[g, i], st.order[g, j]
        if rl.devices[HOME, x] != rl.devices[HOME, y]:
            keep_group(st, saved, g)
            way = below(random, 4)
            if way == 0:
                st.order[g, i], st.order[g, j] = y, x
            elif way == 1:
                while i < j:
                    st.order[g, i], st.order[g, j] = st.order[g, j], st.order[g, i]
                    i += 1
                    j -= 1
            elif way == 2:
                shift_run(st.order[g], i, min(chunk(rl, random, st.meta[g, TP]), j - i), j)
            else:
                swap_runs(st.order[g], i, j, min(chunk(rl, random, st.meta[g, TP]), min(j - i, n - j)))
            return 1 << g
    return 0


@inner
def shift_run(order: Ints, start: int, length: int, end: int) -> None:
    """The ``length`` entries from ``start`` on go behind the one at ``end``."""
    for _ in range(length):
        first = order[start]
        for x in range(start, end):
            order[x] = order[x + 1]
        order[end] = first


@inner
def swap_runs(order: Ints, i: int, j: int, length: int) -> None:
    for x in range(length):
        order[i + x], order[j + x] = order[j + x], order[i + x]


@inner
def swap_stages(order: Ints, cut: Ints, i: int, j: int) -> None:
    """The devices of two stages change places in every replica (nearly, where units of shards are not dealt in order)."""
    if cut[COLUMN]:
        swap_runs(order, i * cut[DP] * cut[TP], j * cut[DP] * cut[TP], cut[DP] * cut[TP])
    else:
        for r in range(cut[DP]):
            swap_runs(order, (r * cut[PP] + i) * cut[TP], (r * cut[PP] + j) * cut[TP], cut[TP])


@inner
def gather(rl: Rules, st: State, saved: State, scratch: Ints, random: Words) -> int:
    """All devices of a home, kind or region in a group move to another place in its order, together."""
    g, row = any_group(st, random), level(rl, random)
    n = st.meta[g, SIZE]
    home = rl.devices[row, st.order[g, below(random, n)]]
    keep_group(st, saved, g)
    mine, rest, m, r = scratch[0], scratch[1], 0, 0
    for x in range(n):
        d = st.order[g, x]
        if rl.devices[row, d] == home:
            mine[m] = d
            m += 1
        else:
            rest[r] = d
            r += 1
    if r == 0:
        return 0
    at = below(random, r + 1)
    for x in range(n):
        st.order[g, x] = rest[x] if x < at else mine[x - at] if x < at + m else rest[x - m]
    return 1 << g


@inner
def movable(rl: Rules, device: int, row: int, value: int, to: int) -> bool:
    """Whether a device is of this home, kind or region and admitted to the bundles ``to`` (0: to none)."""
    return rl.devices[row, device] == value and (to == 0 or rl.admits[to, device])  # type: ignore[no-any-return]


@inner
def exchange(rl: Rules, st: State, saved: State, scratch: Ints, random: Words) -> int:
    """Devices of one home, kind or region in a group against those of another in another group, or idle."""
    last, row = len(st.meta) - 1, level(rl, random)
    g = any_group(st, random)
    for _ in range(TRIES):
        h = below(random, last + 1)
        if h == g or st.meta[h, SIZE] == 0:
            continue
        i, j = below(random, st.meta[g, SIZE]), below(random, st.meta[h, SIZE])
        out, back = st.order[g, i], st.order[h, j]
        near = rl.devices[HOME, out] == rl.devices[HOME, back]
        if rl.devices[KIND, out] == rl.devices[KIND, back] and (near or uniform(random) < 0.8):
            continue
        if not rl.admits[mask_at(st, g), back] or (h < last and not rl.admits[mask_at(st, h), out]):
            continue
        keep_group(st, saved, g)
        keep_group(st, saved, h)
        mine, other = mask_at(st, g), mask_at(st, h) if h < last else 0
        left, home, away = chunk(rl, random, st.meta[g, PP] * st.meta[g, TP]), rl.devices[row, out], rl.devices[row, back]
        x = y = 0
        while left > 0:
            while x < st.meta[g, SIZE] and not movable(rl, st.order[g, (i + x) % st.meta[g, SIZE]], row, home, other):
                x += 1
            while y < st.meta[h, SIZE] and not movable(rl, st.order[h, (j + y) % st.meta[h, SIZE]], row, away, mine):
                y += 1
            if x >= st.meta[g, SIZE] or y >= st.meta[h, SIZE]:
                break
            p, q = (i + x) % st.meta[g, SIZE], (j + y) % st.meta[h, SIZE]
            st.order[g, p], st.order[h, q] = st.order[h, q], st.order[g, p]
            x += 1
            y += 1
            left -= 1
        return 1 << g | 1 << h
    return 0


@inner
def take_out(rl: Rules, st: State, scratch: Ints, group: int, to: int, first: int, most: int, row: int) -> int:
    """Up to ``most`` devices from place ``first`` on into scratch row 0, how many: of one home, kind or region (``row``; −1: of any) and
    admitted to the bundles ``to`` (0: to none)."""
    taken, n, kept = scratch[0], 0, 0
    home = rl.devices[max(row, 0), st.order[group, first]]
    size = st.meta[group, SIZE]
    rest = scratch[1]
    for x in range(size):
        at = (first + x) % size
        d = st.order[group, at]
        scratch[2][at] = 0
        if n < most and (row < 0 or rl.devices[row, d] == home) and (to == 0 or rl.admits[to, d]):
            taken[n] = d
            n += 1
            scratch[2][at] = 1
    for x in range(size):
        if scratch[2][x] == 0:
            rest[kept] = st.order[group, x]
            kept += 1
    for x in range(kept):
        st.order[group, x] = rest[x]
    st.meta[group, SIZE] = kept
    return n


@inner
def put_in(rl: Rules, st: State, scratch: Ints, group: int, count: int, random: Words) -> None:
    """Devices of scratch row 0 into a group: behind the last of their machine or their kind, or anywhere."""
    new, size = scratch[0], st.meta[group, SIZE]
    at, way = size, below(random, 3)
    if way == 2:
        at = below(random, size + 1)
    else:
        for x in range(size):
            d = st.order[group, x]
            if rl.devices[HOME, d] == rl.devices[HOME, new[0]] or (way == 1 and rl.devices[KIND, d] == rl.devices[KIND, new[0]]):
                at = x + 1
    for x in range(size - 1, at - 1, -1):
        st.order[group, x + count] = st.order[group, x]
    for x in range(count):
        st.order[group, at + x] = new[x]
    st.meta[group, SIZE] = size + count


@inner
def carry(rl: Rules, st: State, saved: State, scratch: Ints, random: Words, g: int, h: int, first: int, most: int, row: int) -> int:
    """Up to ``most`` devices like the ``first`` of group g in ``row`` go to group h; the replicas follow. Not all that g has."""
    last = len(st.meta) - 1
    keep_group(st, saved, g)
    keep_group(st, saved, h)
    count = take_out(rl, st, scratch, g, mask_at(st, h) if h < last else 0, first, most, row)
    put_in(rl, st, scratch, h, count, random)
    if g < last and st.meta[g, SIZE] == 0:
        keep_group(saved, st, g)
        keep_group(saved, st, h)
        return 0
    for k in (g, h):
        if k < last:
            fit_cut(rl, mask_at(st, k), st.meta[k])
    return 1 << g | 1 << h


@inner
def move(rl: Rules, st: State, saved: State, scratch: Ints, random: Words) -> int:
    """Devices move from a group (or from idling) to another (or to idling)."""
    last = len(st.meta) - 1
    for _ in range(TRIES):
        g, h = below(random, last + 1), below(random, last + 1)
        if g == h or st.meta[g, SIZE] == 0 or (h < last and st.meta[h, SIZE] == 0):
            continue
        first = below(random, st.meta[g, SIZE])
        if h < last and not rl.admits[mask_at(st, h), st.order[g, first]]:
            continue
        unit = st.meta[h, PP] * st.meta[h, TP] if h < last and below(random, 2) else st.meta[g, PP] * st.meta[g, TP] if g < last else 1
        return carry(rl, st, saved, scratch, random, g, h, first, chunk(rl, random, unit), level(rl, random))  # type: ignore[no-any-return]
    return 0


@inner
def nudge(rl: Rules, st: State, saved: State, scratch: Ints, random: Words) -> int:
    """A small step of a cut: micro-batch, arrangement, rollout's shards, replicas, depth, or shards against depth."""
    g = any_group(st, random)
    cut, mask = st.meta[g], mask_at(st, g)
    keep_group(st, saved, g)
    way = below(random, 6)
    if rl.masks[mask, LAYERS] == 0 or way == 0:
        if rl.masks[mask, ROLLOUTS]:
            cut[SHARDS] = rl.masks[-1, FIRST + below(random, rl.masks[-1, DEGREES])]
            fit_shards(rl, mask, cut)
    elif way == 1:
        cut[MICRO] = max(1, cut[MICRO] // 2) if below(random, 2) else min(rl.misc[MOST_MICRO], cut[MICRO] * 2)
    elif way == 2:
        cut[COLUMN] = 1 - cut[COLUMN]
    elif way == 3:
        cut[DP] = largest_dp(rl, cut[DP] - 1)
        fit_shards(rl, mask, cut)
    elif way == 4:
        step = 1 + below(random, 2)
        cut[PP] = max(1, cut[PP] - step if below(random, 2) else cut[PP] + step)
        fit_cut(rl, mask, cut)
    else:
        tp = rl.masks[mask, FIRST + below(random, rl.masks[mask, DEGREES])]
        cut[PP] = rl.masks[mask, FIXED_PP] if rl.masks[mask, FIXED_PP] else max(1, cut[PP] * cut[TP] // tp)
        cut[TP] = tp
        fit_cut(rl, mask, cut)
    for c in range(SHARDS + 1):
        if cut[c] != saved.meta[g, c]:
            if fits(rl, mask, cut):
                return 1 << g
            break
    keep_group(saved, st, g)
    return 0


@inner
def regroup(rl: Rules, st: State, saved: State, scratch: Ints, random: Words) -> int:
    """A bundle goes to another group, or to one of its own with part of the devices; a group without bundles gives its devices away."""
    last = len(st.meta) - 1
    bundle = below(random, last)
    g, h = st.meta[bundle, HOLDER], below(random, last)
    if g == h:
        return 0
    mask, to = mask_at(st, g), mask_at(st, h)
    left, more = mask & ~(1 << bundle), to | 1 << bundle
    if not rl.masks[more, LEGAL] or (left and not rl.masks[left, LEGAL]) or (left == 0 and to == 0):
        return 0
    part = st.meta[g, SIZE] if left == 0 else 1 + below(random, st.meta[g, SIZE] - 1) if st.meta[g, SIZE] > 1 else 0
    if to == 0 and part == 0:
        return 0
    keep_group(st, saved, g)
    keep_group(st, saved, h)
    if left == 0 or to == 0:
        part = take_out(rl, st, scratch, g, 0, 0 if below(random, 2) else st.meta[g, SIZE] - part, part, -1)
        put_in(rl, st, scratch, h, part, random)
    if to == 0:
        copy(st.meta[g], st.meta[h], SHARDS)
    st.meta[h, SHARDS] = max(st.meta[h, SHARDS], st.meta[g, SHARDS])
    st.meta[bundle, HOLDER] = h
    for x in range(st.meta[h, SIZE]):
        if not rl.admits[more, st.order[h, x]]:
            st.meta[bundle, HOLDER] = g
            keep_group(saved, st, g)
            keep_group(saved, st, h)
            return 0
    return 1 << g | 1 << h
