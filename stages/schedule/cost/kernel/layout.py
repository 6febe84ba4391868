"""From devices and a cut to a group's layouts: ranks, layer splits, shares, micro-batches. What the search varies is the cut; the rest
follows.
"""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import Flat, Floats, Ints, Ledger, Tables
from stages.schedule.cost.kernel.balance import apportion, deal_micro_batches, rounded, split_layers
from stages.schedule.cost.kernel.footprint import held_params, optimizer_bytes, owns_weights, replicas_sharing, working_bytes
from stages.schedule.cost.kernel.generation import admit, share_costs
from stages.schedule.cost.kernel.jit import copy, entry, inner
from stages.schedule.cost.kernel.pipeline import of_a_layer, of_the_stage, prepare_stages, stage_seconds
from stages.schedule.cost.kernel.price import hold_group, settle_memory

BALANCING_ROUNDS = 2


@inner
def cut_units(tb: Tables, lg: Ledger, devices: Ints, count: int, tp: int, units: Ints) -> int:
    """Cut ``count`` ordered devices into tensor-parallel units: inside machines first, in order; leftovers form units across machines.

    ``units`` takes the devices unit after unit; the number of units is returned.
    """
    if tp == 1:
        copy(devices, units, count)
        return count
    seen, taken, done = lg.machines[0], lg.whole[2], 0
    for x in range(count):
        seen[tb.dev[devices[x]].machine] = 0.0
        taken[x] = 0
    for x in range(count):
        machine = tb.dev[devices[x]].machine
        seen[machine] += 1.0
        if seen[machine] % tp == 0.0:
            missing = tp
            for y in range(x, -1, -1):
                if missing and not taken[y] and tb.dev[devices[y]].machine == machine:
                    missing -= 1
                    taken[y] = 1
                    units[done + missing] = devices[y]
            done += tp
    rest = lg.whole[3]
    left = 0
    for x in range(count):
        machine = tb.dev[devices[x]].machine
        if taken[x] == 0:
            for y in range(x, count):
                if taken[y] == 0 and tb.dev[devices[y]].machine == machine:
                    taken[y] = 1
                    rest[left] = devices[y]
                    left += 1
    for x in range(left // tp * tp):
        units[done + x] = rest[x]
    return (done + left) // tp


@inner
def write_ranks(tb: Tables, fp: Flat, lg: Ledger, task: int, devices: Ints, count: int, dp: int, pp: int, tp: int, column: bool) -> bool:
    """Ranks of a cut over ordered devices; False where they do not suffice. ``column``: consecutive units form a stage, not a pipeline."""
    units = lg.whole[1]
    if cut_units(tb, lg, devices, count, tp, units) < dp * pp:
        return False
    fp.row[task].dp, fp.row[task].pp, fp.row[task].tp = dp, pp, tp
    for i in range(dp):
        for j in range(pp):
            unit = j * dp + i if column else i * pp + j
            for k in range(tp):
                fp.ranks[task, (i * pp + j) * tp + k] = units[unit * tp + k]
    return True


@inner
def stage_bytes(tb: Tables, fp: Flat, task: int, layers: int, j: int, micro: int) -> tuple[float, float]:
    """(resident, working) of a rank of stage j with that many layers and ``pp`` micro-batches at hand."""
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    each = tb.job[0].element_bytes / replicas_sharing(tb, dp) if owns_weights(tb, fp, task) else 0.0
    if tb.task[task].training:
        each += tb.job[0].gradient_bytes / replicas_sharing(tb, dp) + optimizer_bytes(tb, dp)
    held = held_params(tb, task, layers, j == 0, j == pp - 1) / tp * each
    return held, working_bytes(tb, task, layers, j == pp - 1, pp - j, tp, micro)


@inner
def most_layers(tb: Tables, fp: Flat, group: int, leader: int, micro: int, rollout_tp: int, bounds: Floats) -> None:
    """Largest fraction of its layers each stage can hold into ``bounds``, if every task of the group splits its layers alike."""
    dp, pp, tp = fp.row[leader].dp, fp.row[leader].pp, fp.row[leader].tp
    for j in range(pp):
        usable = 1e300
        for i in range(dp):
            for r in range((i * pp + j) * tp, (i * pp + j + 1) * tp):
                usable = min(usable, tb.dev[fp.ranks[leader, r]].usable)
        fixed, slope = tb.job[0].process_bytes, 0.0
        if rollout_tp:
            whole = held_params(tb, tb.job[0].rollout, tb.task[tb.job[0].rollout].layers, True, True) * tb.job[0].element_bytes / rollout_tp
            fixed += whole + tb.job[0].process_bytes + tb.job[0].generation_bytes
        work_fixed = work_slope = 0.0
        for t in range(len(fp.row)):
            if fp.row[t].group != group or t == tb.job[0].rollout:
                continue
            held, needs = stage_bytes(tb, fp, t, 1, j, micro)
            held_two, needs_two = stage_bytes(tb, fp, t, 2, j, micro)
            grows, works = held_two - held, needs_two - needs
            start = held - grows
            if not tb.job[0].offload:
                fixed += start
                slope += grows * tb.task[t].layers
                start = grows = 0.0
            work_fixed = max(work_fixed, start + needs - works)
            work_slope = max(work_slope, (grows + works) * tb.task[t].layers)
        bounds[j] = min(max((usable - fixed - work_fixed) / max(slope + work_slope, 1.0), 0.0), 1.0)


@inner
def split_stages(tb: Tables, fp: Flat, lg: Ledger, task: int, bounds: Floats) -> bool:
    """Layers by stage, one split for all replicas: each replica's stage times count relative to its own mean stage."""
    dp, pp = fp.row[task].dp, fp.row[task].pp
    total = tb.task[task].layers
    if pp == 1:
        fp.split[task, 0] = total
        return True
    if not tb.job[0].uneven_layers:
        fp.split[task, :pp] = total // pp
        return total % pp == 0
    per_layer, fixed, most = lg.floats[1, :pp], lg.floats[2, :pp], lg.whole[0, :pp]
    per_layer[:] = 0.0
    fixed[:] = 0.0
    for i in range(dp):
        mean = 0.0
        for j in range(pp):
            mean += of_a_layer(stage_seconds(tb, fp, lg, task, task, tb.task[task].training == 1, i, j)) / pp
        for j in range(pp):
            stage = stage_seconds(tb, fp, lg, task, task, tb.task[task].training == 1, i, j)
            per_layer[j] = max(per_layer[j], of_a_layer(stage) / mean)
            fixed[j] = max(fixed[j], of_the_stage(stage) / mean)
    for j in range(pp):
        most[j] = int(bounds[j] * total + 1e-9)
    if split_layers(total, per_layer, fixed, most, fp.split[task]):
        return True
    most[:] = total
    return split_layers(total, per_layer, fixed, most, fp.split[task])


@inner
def deal_batch(tb: Tables, fp: Flat, lg: Ledger, task: int, micro: int, most: int, training: bool) -> bool:
    """Shares and micro-batches of the replicas, by the time a sequence takes on each one's slowest stage."""
    dp, pp = fp.row[task].dp, fp.row[task].pp
    costs = lg.floats[3, :dp]
    costs[:] = 0.0
    for i in range(dp):
        for j in range(pp):
            stage = stage_seconds(tb, fp, lg, task, task, tb.task[task].training == 1, i, j)
            costs[i] = max(costs[i], (fp.split[task, j] * of_a_layer(stage) + of_the_stage(stage)) / micro)
    least = costs[0]
    for i in range(1, dp):
        least = min(least, costs[i])
    for i in range(dp):
        costs[i] = rounded(costs[i] / least)
    whole = tb.job[0].sequences // tb.job[0].mini_batches if training else tb.job[0].sequences
    count = deal_micro_batches(whole, costs, most, pp, not tb.job[0].uneven_batches, fp.micro[task], lg.whole[1])
    if count == 0:
        return False
    fp.row[task].micro_batches = count
    for i in range(dp):
        fp.local[task, i] = fp.micro[task, i] * count * (tb.job[0].sequences // whole)
    return True


@inner
def lay_out_models(
    tb: Tables,
    fp: Flat,
    lg: Ledger,
    group: int,
    devices: Ints,
    count: int,
    dp: int,
    pp: int,
    tp: int,
    most: int,
    column: bool,
    rollout_tp: int,
) -> bool:
    """Layouts of the group's training and inference tasks over ordered devices; False where the cut cannot be made.

    ``most`` bounds a micro-batch. Tasks of the group are those whose ``fp.group`` is ``group``.
    """
    mini = tb.job[0].sequences // tb.job[0].mini_batches
    micro = max(1, min(most, -(-mini // dp)))
    first = -1
    for t in range(len(fp.row)):
        if fp.row[t].group != group or t == tb.job[0].rollout:
            continue
        if pp > tb.task[t].layers or not write_ranks(tb, fp, lg, t, devices, count, dp, pp, tp, column):
            return False
        fp.micro[t, :dp] = micro
        first = t
    bounds = lg.floats[0]
    most_layers(tb, fp, group, first, micro, rollout_tp, bounds)
    for leader in range(len(fp.row)):
        if fp.row[leader].group != group or leader == tb.job[0].rollout or leads(tb, fp, leader) != leader:
            continue
        training = tb.task[leader].training == 1
        for t in range(len(fp.row)):
            if fp.row[t].group == group and t != tb.job[0].rollout and leads(tb, fp, t) == leader:
                training = training or tb.task[t].training == 1
        prepare_stages(tb, fp, lg, leader, tb.task[leader].training == 1)
        if not split_stages(tb, fp, lg, leader, bounds) or not deal_batch(tb, fp, lg, leader, micro, most, training):
            return False
    for t in range(len(fp.row)):
        if fp.row[t].group == group and t != tb.job[0].rollout and leads(tb, fp, t) != t:
            leader = leads(tb, fp, t)
            copy(fp.split[leader], fp.split[t], pp)
            copy(fp.local[leader], fp.local[t], dp)
            copy(fp.micro[leader], fp.micro[t], dp)
            fp.row[t].micro_batches = fp.row[leader].micro_batches
    return True


@inner
def leads(tb: Tables, fp: Flat, task: int) -> int:
    """The task whose strategy a task takes; itself, where it is free."""
    other = tb.task[task].follows
    return other if other >= 0 and fp.row[other].group == fp.row[task].group else task


@inner
def lay_out_rollout(tb: Tables, fp: Flat, lg: Ledger, group: int, devices: Ints, count: int, tp: int) -> bool:
    """Generation replicas of one stage: on the actor's ranks in their order where they share a group, else over the devices."""
    t, a = tb.job[0].rollout, tb.job[0].actor
    if fp.row[a].group == group:
        size = fp.row[a].dp * fp.row[a].pp * fp.row[a].tp
        if size % tp:
            return False
        copy(fp.ranks[a], fp.ranks[t], size)
        fp.row[t].dp, fp.row[t].pp, fp.row[t].tp = size // tp, 1, tp
    elif count < tp or not write_ranks(tb, fp, lg, t, devices, count, count // tp, 1, tp, False):
        return False
    fp.split[t, 0] = tb.task[t].layers
    return True


@entry
def deal_rollout(tb: Tables, fp: Flat, lg: Ledger, group: int) -> bool:
    """Shares of the batch so that replicas end together: proportional to the rate each showed with its last share; the best round wins."""
    t = tb.job[0].rollout
    replicas = fp.row[t].dp
    costs, shares, trial = lg.floats[3, :replicas], lg.whole[0], lg.whole[1]
    costs[:] = 1.0
    if not apportion(tb.job[0].sequences, costs, tb.job[0].sequences, shares):
        return False
    copy(shares, fp.local[t], replicas)
    fp.row[t].micro_batches = 1
    hold_group(tb, fp, lg, group)
    settle_memory(tb, fp, lg, group, True)
    admit(tb, fp, lg)
    best = share_costs(tb, fp, lg, costs)
    if tb.job[0].uneven_batches:
        for _ in range(BALANCING_ROUNDS):
            even = True
            for i in range(replicas):
                costs[i] = rounded(costs[i])
                even = even and costs[i] == costs[0]
            if even or not apportion(tb.job[0].sequences, costs, tb.job[0].sequences, trial):
                break
            copy(trial, fp.local[t], replicas)
            slowest = share_costs(tb, fp, lg, costs)
            if slowest < best:
                best = slowest
                copy(trial, shares, replicas)
        copy(shares, fp.local[t], replicas)
    for i in range(replicas):
        fp.micro[t, i] = min(lg.slot[i].in_flight, shares[i])
    return True


@entry
def lay_out_group(
    tb: Tables,
    fp: Flat,
    lg: Ledger,
    group: int,
    devices: Ints,
    count: int,
    dp: int,
    pp: int,
    tp: int,
    most: int,
    column: bool,
    rollout_tp: int,
) -> bool:
    """Everything of a group that a cut decides. ``rollout_tp`` 0: no rollout here; ``dp`` 0: nothing but rollout here."""
    if dp and not lay_out_models(tb, fp, lg, group, devices, count, dp, pp, tp, most, column, rollout_tp):
        return False
    return not rollout_tp or (lay_out_rollout(tb, fp, lg, group, devices, count, rollout_tp) and deal_rollout(tb, fp, lg, group))


@entry
def mean_rank_bytes(tb: Tables, fp: Flat, group: int, dp: int, pp: int, tp: int, micro: int, rollout_tp: int) -> float:
    """Bytes the mean of the first, middle and last stage's ranks would need with equal stages."""
    held = working = 0.0
    if rollout_tp:
        whole = held_params(tb, tb.job[0].rollout, tb.task[tb.job[0].rollout].layers, True, True) * tb.job[0].element_bytes / rollout_tp
        held += whole + tb.job[0].process_bytes + tb.job[0].generation_bytes
    for t in range(len(fp.row)):
        if fp.row[t].group != group or t == tb.job[0].rollout:
            continue
        fp.row[t].dp, fp.row[t].pp, fp.row[t].tp = dp, pp, tp
        resident = needs = 0.0
        for place in range(3):
            r, n = stage_bytes(tb, fp, t, max(1, tb.task[t].layers // pp), 0 if place == 0 else pp // 2 if place == 1 else pp - 1, micro)
            resident += r / 3.0
            needs += n / 3.0
        if tb.job[0].offload:
            working = max(working, resident + needs)
        else:
            held += resident
            working = max(working, needs)
    return held + working + tb.job[0].process_bytes
