"""Moves of whole kinds and regions: drawn like the other moves, and each once in turn at the beginning of a search (the tour)."""

from __future__ import annotations

from stages.schedule.cost.kernel.jit import inner
from stages.schedule.search.auto.arrays import KIND, REGION, SIZE, Ints, Rules, State, Words
from stages.schedule.search.auto.kernel_moves import ALL, below, carry, level, movable
from stages.schedule.search.auto.kernel_plan import keep_group, mask_at


@inner
def migrate(rl: Rules, st: State, saved: State, scratch: Ints, random: Words, row: int, value: int, g: int, h: int) -> int:
    """All devices of a kind or region in group g go to group h, or to idling."""
    last = len(st.meta) - 1
    if g != h and st.meta[g, SIZE] > 0 and (h == last or st.meta[h, SIZE] > 0):
        to = mask_at(st, h) if h < last else 0
        for x in range(st.meta[g, SIZE]):
            if movable(rl, st.order[g, x], row, value, to):
                return carry(rl, st, saved, scratch, random, g, h, x, ALL, row)  # type: ignore[no-any-return]
    return 0


@inner
def trade(rl: Rules, st: State, saved: State, scratch: Ints, row: int, a: int, b: int) -> int:
    """Two homes, kinds or regions change places in the whole plan, device by device in the order of the fleet."""
    last, where, other, touched, x, y = len(st.meta) - 1, scratch[0], scratch[1], 0, 0, 0
    size = rl.devices.shape[1]
    for d in range(size):
        where[d] = other[d] = -1
    for g in range(last + 1):
        for n in range(st.meta[g, SIZE]):
            where[st.order[g, n]] = g
    while a != b and x < size and y < size:
        if where[x] < 0 or rl.devices[row, x] != a:
            x += 1
        elif where[y] < 0 or rl.devices[row, y] != b:
            y += 1
        else:
            g, h = where[x], where[y]
            if (g < last or h < last) and (g == last or rl.admits[mask_at(st, g), y]) and (h == last or rl.admits[mask_at(st, h), x]):
                other[x], other[y] = y, x
                touched |= 1 << g | 1 << h
            x += 1
            y += 1
    for g in range(last + 1):
        if touched >> g & 1:
            keep_group(st, saved, g)
            for n in range(st.meta[g, SIZE]):
                if other[st.order[g, n]] >= 0:
                    st.order[g, n] = other[st.order[g, n]]
    return touched


@inner
def any_trade(rl: Rules, st: State, saved: State, scratch: Ints, random: Words) -> int:
    """A trade of two homes, kinds or regions that devices drawn at random are of."""
    row, size = level(rl, random), rl.devices.shape[1]
    return trade(rl, st, saved, scratch, row, rl.devices[row, below(random, size)], rl.devices[row, below(random, size)])  # type: ignore[no-any-return]


@inner
def count_of(rl: Rules, row: int) -> int:
    """How many homes, kinds (numbers that none has included) or regions there are."""
    most = 0
    for d in range(rl.devices.shape[1]):
        most = max(most, rl.devices[row, d] + 1)
    return most


@inner
def tour_length(rl: Rules, st: State) -> int:
    """How many moves a tour has."""
    regions, kinds, groups = count_of(rl, REGION), count_of(rl, KIND), len(st.meta)
    return regions * regions + (regions + kinds) * groups * groups


@inner
def tour_trades(rl: Rules) -> int:
    """How many of them, the first ones, are trades."""
    return count_of(rl, REGION) ** 2


@inner
def tour_move(rl: Rules, st: State, saved: State, scratch: Ints, random: Words, number: int) -> int:
    """The ``number``-th move of the tour: every two regions change places; every region and kind goes from every group to every other."""
    regions, groups = count_of(rl, REGION), len(st.meta)
    if number < regions * regions:
        a, b = number // regions, number % regions
        return trade(rl, st, saved, scratch, REGION, a, b) if a < b else 0
    number -= regions * regions
    g, h, value = number % groups, number // groups % groups, number // (groups * groups)
    if value < regions:
        return migrate(rl, st, saved, scratch, random, REGION, value, g, h)  # type: ignore[no-any-return]
    return migrate(rl, st, saved, scratch, random, KIND, value - regions, g, h)  # type: ignore[no-any-return]
