"""The local search: one plan, changed move by move. A move stays if the plan is no worse than it was, or than it was some moves ago."""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import Ints, Tables
from stages.schedule.cost.kernel.jit import entry, inner
from stages.schedule.cost.kernel.price import compose
from stages.schedule.search.auto.arrays import BEST, COUNTS, HOLDER, MADE, PRESENT, PRICED, TOUR, WIDE, Bench, Rules, State, Words
from stages.schedule.search.auto.kernel_cut import cut_alone, cut_anew
from stages.schedule.search.auto.kernel_moves import any_group, exchange, gather, move, nudge, regroup, reorder
from stages.schedule.search.auto.kernel_plan import (
    IMPOSSIBLE,
    copy_state,
    fits,
    floor_cost,
    hold_tasks,
    keep_group,
    keep_prices,
    mask_at,
    penalised,
    price_models,
    price_rollout_of,
    restore_prices,
    uniform,
)
from stages.schedule.search.auto.kernel_tour import any_trade, tour_length, tour_move, tour_trades

MOVES = ("reorder", "gather", "nudge", "recut", "exchange", "move", "regroup", "trade")
RECUT, EXCHANGE, MOVE, REGROUP, TRADE = 3, 4, 5, 6, 7
RECUT_SHARE = 0.5
"""Share of the moves that change a group's devices after which its cut is chosen anew; after a change of its tasks it always is."""

TOLERANCE = 0.05
"""By how much more than the plan after the tour a plan may cost at first, at most."""
LESS = 1.0 - 1e-9
"""What a move of the tour, and a best plan, must be below, relative."""
NOTHING = 0.125
"""Evaluations that a move counts which changes nothing: where nothing can be moved the search ends all the same."""


@inner
def make_move(rl: Rules, st: State, saved: State, scratch: Ints, random: Words, kind: int) -> int:
    if kind == 0:
        return reorder(rl, st, saved, scratch, random)  # type: ignore[no-any-return]
    if kind == 1:
        return gather(rl, st, saved, scratch, random)  # type: ignore[no-any-return]
    if kind == 2:
        return nudge(rl, st, saved, scratch, random)  # type: ignore[no-any-return]
    if kind == RECUT:
        g = any_group(st, random)
        keep_group(st, saved, g)
        return 1 << g
    if kind == EXCHANGE:
        return exchange(rl, st, saved, scratch, random)  # type: ignore[no-any-return]
    if kind == REGROUP:
        return regroup(rl, st, saved, scratch, random)  # type: ignore[no-any-return]
    if kind == TRADE:
        return any_trade(rl, st, saved, scratch, random)  # type: ignore[no-any-return]
    return move(rl, st, saved, scratch, random)  # type: ignore[no-any-return]


@inner
def take_back(rl: Rules, b: Bench, touched: int) -> None:
    """Undo a move that did not stay."""
    groups = len(b.state.meta) - 1
    for g in range(groups):
        b.state.meta[g, HOLDER] = b.saved.meta[g, HOLDER]
    hold_tasks(b.flat, rl, b.state)
    for g in range(groups + 1):
        if touched >> g & 1:
            keep_group(b.saved, b.state, g)
            if g < groups:
                restore_prices(b, g)


@inner
def price_touched(tb: Tables, rl: Rules, b: Bench, touched: int, anew: bool, limit: float) -> float:
    """Cost of the plan after a move; impossibly much where it cannot be laid out, or surely costs more than ``limit``.

    ``anew``: the cuts of the groups touched are chosen anew first, which is also done where they do not fit.
    """
    groups, made, cost = len(b.state.meta) - 1, True, IMPOSSIBLE
    for g in range(groups):
        if touched >> g & 1:
            anew = anew or not (mask_at(b.state, g) == 0 or fits(rl, mask_at(b.state, g), b.state.meta[g]))
            for phase in range(4):
                b.ledger.groups[g, phase] = 0.0
    b.sums[PRICED] += 1.0
    if anew:
        for g in range(groups):
            if touched >> g & 1 and made:
                tried = cut_anew(tb, rl, b, g, False)
                b.sums[PRICED] += tried
                made = tried > 0
    for g in range(groups):
        if touched >> g & 1 and made:
            made = price_models(tb, rl, b, g)
    made = made and floor_cost(tb, b) <= limit
    for g in range(groups):
        if touched >> g & 1 and made:
            made = price_rollout_of(tb, rl, b, g)
    if made and floor_cost(tb, b) <= limit:
        seconds = compose(tb, b.flat, b.ledger, groups)
        cost = penalised(seconds, b.ledger.total[0].overflow)
    return cost


@inner
def chain(tb: Tables, rl: Rules, b: Bench, evaluations: int) -> None:
    """Moves from ``b.state`` for a number of evaluations: a plan is one, and a cut tried. The best plan goes into ``b.best``.

    What is left of the tour comes first; its moves stay only if the plan is better than it was.
    """
    sums, history, kinds, groups = b.sums, b.history, len(MOVES) - 1 + rl.misc[WIDE], len(b.state.meta) - 1
    end, touched, kind, moving = sums[PRICED] + evaluations, (1 << groups) - 1, 0, False
    length, trades = tour_length(rl, b.state), tour_trades(rl)
    hold_tasks(b.flat, rl, b.state)
    sums[PRESENT] = IMPOSSIBLE
    while not moving or sums[PRICED] < end:
        touring = moving and sums[TOUR] < length
        if moving:
            for g in range(groups):
                b.saved.meta[g, HOLDER] = b.state.meta[g, HOLDER]
            if touring:
                number = int(sums[TOUR])
                kind = TRADE if number < trades else MOVE
                touched = tour_move(rl, b.state, b.saved, b.scratch, b.random, number)
                sums[TOUR] += 1.0
            else:
                kind = int(uniform(b.random) * kinds)
                touched = make_move(rl, b.state, b.saved, b.scratch, b.random, kind)
            for g in range(groups):
                if touched >> g & 1:
                    keep_prices(b, g)
            hold_tasks(b.flat, rl, b.state)
        at = int(sums[MADE]) % len(history)
        limit = sums[PRESENT] * LESS if touring else max(sums[PRESENT], history[at]) if moving else IMPOSSIBLE
        anew = moving and (kind in (RECUT, REGROUP) or (kind >= EXCHANGE and uniform(b.random) < RECUT_SHARE))
        anew = kind == MOVE if touring else anew
        sums[MADE] += 1.0
        sums[PRICED] += 0.0 if touched else NOTHING
        if touched:
            cost = price_touched(tb, rl, b, touched, anew, limit)
            sums[COUNTS + kind] += 1.0 if moving else 0.0
            if cost < IMPOSSIBLE and cost <= limit:
                sums[COUNTS + len(MOVES) + kind] += 1.0 if moving and cost < sums[PRESENT] else 0.0
                sums[PRESENT] = cost
                if cost < sums[BEST] * LESS:
                    sums[BEST] = cost
                    copy_state(b.state, b.best)
            elif moving:
                take_back(rl, b, touched)
            for h in range(0 if moving else len(history)):
                history[h] = min(history[h], sums[PRESENT])
            if not touring:
                history[at] = min(history[at], sums[PRESENT])
        if touring and sums[TOUR] >= length:
            for h in range(len(history)):
                history[h] = min(history[h], sums[PRESENT] * (1.0 + TOLERANCE))
        moving = True


@entry
def work(tb: Tables, rl: Rules, b: Bench, mask: int, evaluations: int) -> None:
    """``mask`` 0: ``evaluations`` of local search from ``b.state``. Else the best cut of group 0's devices for these bundles alone."""
    if mask:
        for g in range(len(b.state.meta) - 1):
            b.state.meta[g, HOLDER] = 0 if mask >> g & 1 else -1
        hold_tasks(b.flat, rl, b.state)
        for t in range(len(b.flat.row)):
            b.flat.row[t].dp = b.flat.row[t].pp = b.flat.row[t].tp = 0
        for g in range(len(b.ledger.groups)):
            for phase in range(4):
                b.ledger.groups[g, phase] = 0.0
        b.sums[PRICED] += cut_alone(tb, rl, b, mask)
        b.sums[PRESENT] = floor_cost(tb, b)
    else:
        chain(tb, rl, b, evaluations)
