"""A thread's plan in the compiled search: priced group by group, changed by moves that can be taken back."""

from __future__ import annotations

import numpy as np

from stages.schedule.cost.kernel.arrays import INFERENCE, MOVED, OVERFLOW, ROLLOUT, TRAINING, Flat, Tables
from stages.schedule.cost.kernel.jit import copy, inner
from stages.schedule.cost.kernel.layout import deal_rollout, lay_out_models, lay_out_rollout
from stages.schedule.cost.kernel.price import reprice_group
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.search.auto.arrays import (
    BUNDLES,
    COLUMN,
    DEGREES,
    DP,
    FIRST,
    FIXED_DP,
    FIXED_PP,
    FIXED_ROLLOUT,
    HOLDER,
    LAYERS,
    MICRO,
    PP,
    ROLLOUTS,
    SHARDS,
    SIZE,
    TP,
    Bench,
    Ints,
    Rules,
    State,
    Words,
)

IMPOSSIBLE = 1e16
"""More than any plan costs, even one that does not fit."""
SCALE = 1.0 / 9007199254740992.0


@inner
def uniform(random: Words) -> float:
    """Between 0 and 1: xorshift64, so that a seed means the same everywhere."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return (x >> np.uint64(11)) * SCALE  # type: ignore[no-any-return]


@inner
def below(random: Words, count: int) -> int:
    return int(uniform(random) * count)


@inner
def mask_at(st: State, group: int) -> int:
    """Bundles of a group as bits."""
    mask = 0
    for b in range(len(st.meta) - 1):
        if st.meta[b, HOLDER] == group:
            mask |= 1 << b
    return mask


@inner
def hold_tasks(fp: Flat, rl: Rules, st: State) -> None:
    """Tell the kernel which group runs which task."""
    for t in range(len(fp.row)):
        fp.row[t].group = st.meta[rl.misc[BUNDLES + t], HOLDER]


@inner
def fits(rl: Rules, mask: int, cut: Ints) -> bool:
    """Whether the engine and the user allow a cut, and the group's devices suffice for it."""
    if rl.masks[mask, LAYERS] == 0:
        return cut[DP] == 0 and 0 < cut[SHARDS] <= cut[SIZE]
    if cut[DP] < 1 or cut[DP] >= len(rl.dps) or not rl.dps[cut[DP]] or cut[PP] < 1 or cut[PP] > rl.masks[mask, LAYERS]:
        return False
    if rl.masks[mask, FIXED_DP] not in (0, cut[DP]) or rl.masks[mask, FIXED_PP] not in (0, cut[PP]):
        return False
    found, ranks = False, cut[DP] * cut[PP] * cut[TP]
    for x in range(rl.masks[mask, DEGREES]):
        found = found or rl.masks[mask, FIRST + x] == cut[TP]
    if rl.masks[mask, ROLLOUTS]:
        found = found and cut[SHARDS] > 0 and ranks % cut[SHARDS] == 0
    return found and ranks <= cut[SIZE]


@inner
def price_models(tb: Tables, rl: Rules, b: Bench, group: int) -> bool:
    """Lay out and price a group's training and inference; False where its cut cannot be made."""
    mask, cut, rollout = mask_at(b.state, group), b.state.meta[group], tb.job[0].rollout
    order, column = b.state.order[group], cut[COLUMN] == 1
    for phase in range(4):
        b.ledger.groups[group, phase] = 0.0
    made = mask == 0 or fits(rl, mask, cut)
    if made and rl.masks[mask, LAYERS] > 0:
        if rl.masks[mask, ROLLOUTS]:
            b.flat.row[rollout].group = -1
        made = lay_out_models(tb, b.flat, b.ledger, group, order, cut[SIZE], cut[DP], cut[PP], cut[TP], cut[MICRO], column, cut[SHARDS])
        if made:
            reprice_group(tb, b.flat, b.ledger, group, -1)
        if rl.masks[mask, ROLLOUTS]:
            b.flat.row[rollout].group = group
    return made


@inner
def price_rollout_of(tb: Tables, rl: Rules, b: Bench, group: int) -> bool:
    """Lay out and price a group's rollout, where it has one, after its models; False where it cannot be."""
    mask, cut, rollout = mask_at(b.state, group), b.state.meta[group], tb.job[0].rollout
    made = True
    if rl.masks[mask, ROLLOUTS]:
        made = lay_out_rollout(tb, b.flat, b.ledger, group, b.state.order[group], cut[SIZE], cut[SHARDS])
        made = made and rl.misc[FIXED_ROLLOUT] in (0, b.flat.row[rollout].dp) and deal_rollout(tb, b.flat, b.ledger, group)
        if made:
            reprice_group(tb, b.flat, b.ledger, group, rollout)
    return made


@inner
def penalised(seconds: float, overflow: float) -> float:
    """What the search minimises, as :func:`stages.schedule.cost.iteration.cost_of`."""
    return 2.0 * UNUSABLE_S * (1.0 + overflow) + min(seconds, UNUSABLE_S) if overflow > 0.0 else seconds


@inner
def floor_cost(tb: Tables, b: Bench) -> float:
    """No plan with the groups priced so far can cost less."""
    rollout = inference = training = overflow = 0.0
    for g in range(len(b.state.meta) - 1):
        rollout += b.ledger.groups[g, ROLLOUT]
        inference = max(inference, b.ledger.groups[g, INFERENCE])
        training = max(training, b.ledger.groups[g, TRAINING])
        overflow = max(overflow, b.ledger.groups[g, OVERFLOW])
    return penalised(max(rollout, inference + training) if tb.job[0].asynchronous else rollout + inference + training, overflow)


@inner
def copy_state(source: State, target: State) -> None:
    for g in range(len(source.meta)):
        copy(source.meta[g], target.meta[g], HOLDER + 1)
        copy(source.order[g], target.order[g], source.meta[g, SIZE])


@inner
def keep_group(source: State, target: State, group: int) -> None:
    """A group's devices and cut from one state to another, without its bundles."""
    copy(source.meta[group], target.meta[group], SIZE + 1)
    copy(source.order[group], target.order[group], source.meta[group, SIZE])


@inner
def copy_row(source: Flat, target: Flat, task: int) -> None:
    dp, pp, tp = source.row[task].dp, source.row[task].pp, source.row[task].tp
    target.row[task].dp, target.row[task].pp, target.row[task].tp = dp, pp, tp
    target.row[task].micro_batches = source.row[task].micro_batches
    copy(source.ranks[task], target.ranks[task], dp * pp * tp)
    copy(source.split[task], target.split[task], pp)
    copy(source.local[task], target.local[task], dp)
    copy(source.micro[task], target.micro[task], dp)


@inner
def keep_prices(b: Bench, group: int) -> None:
    """Remember what a group's last price left for composing plans, after :func:`keep_group` and before it is priced again."""
    tasks = len(b.flat.row)
    for phase in range(4):
        b.saved_prices[tasks + 1, group * 4 + phase] = b.ledger.groups[group, phase]
    for x in range(b.saved.meta[group, SIZE]):
        d = b.saved.order[group, x]
        b.saved_prices[tasks, d] = b.ledger.slot[d].peak
    for t in range(tasks):
        if b.flat.row[t].group == group:
            copy_row(b.flat, b.saved_flat, t)
            for x in range(b.saved.meta[group, SIZE]):
                d = b.saved.order[group, x]
                b.saved_prices[t, d] = b.ledger.memory[t, MOVED, d]


@inner
def restore_prices(b: Bench, group: int) -> None:
    """The way back of :func:`keep_prices`, once the tasks are held as before."""
    tasks = len(b.flat.row)
    for phase in range(4):
        b.ledger.groups[group, phase] = b.saved_prices[tasks + 1, group * 4 + phase]
    for x in range(b.saved.meta[group, SIZE]):
        d = b.saved.order[group, x]
        b.ledger.slot[d].peak = b.saved_prices[tasks, d]
    for t in range(tasks):
        if b.flat.row[t].group == group:
            copy_row(b.saved_flat, b.flat, t)
            for x in range(b.saved.meta[group, SIZE]):
                d = b.saved.order[group, x]
                b.ledger.memory[t, MOVED, d] = b.saved_prices[t, d]
