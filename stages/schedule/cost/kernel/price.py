"""The price of a plan: its groups, each an exclusive resource, and the iteration they make together.

Synchronous: rollout, then all inference, then all training, then the weight update (each phase needs the whole batch of the one before).
Asynchronous: rollout beside the rest, then the weight update.
"""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import (
    INFERENCE,
    MODEL_PROCESS,
    MOVED,
    OFFLOAD,
    OVERFLOW,
    ROLLOUT,
    ROLLOUT_PROCESS,
    TRAINING,
    WORKING,
    Flat,
    Ledger,
    Tables,
)
from stages.schedule.cost.kernel.footprint import held_params, model_footprint, owns_weights, replicas_sharing
from stages.schedule.cost.kernel.generation import admit, give_cache, price_rollout, rollout_weights
from stages.schedule.cost.kernel.jit import entry, inner
from stages.schedule.cost.kernel.pipeline import after_backward, gather_for_inference, pass_over_batch
from stages.schedule.cost.kernel.reshard import weight_update

ROUNDING = 1e-6
"""Relative lack of memory that is nothing but rounding."""


@inner
def gather_members(fp: Flat, lg: Ledger, group: int) -> int:
    """Devices of a group into ``lg.members``; how many."""
    lg.total[0].clock += 1
    n = 0
    for t in range(len(fp.row)):
        if fp.row[t].group != group:
            continue
        for r in range(fp.row[t].dp * fp.row[t].pp * fp.row[t].tp):
            device = fp.ranks[t, r]
            if lg.slot[device].mark != lg.total[0].clock:
                lg.slot[device].mark = lg.total[0].clock
                lg.slot[n].members = device
                n += 1
    return n


@inner
def settle_memory(tb: Tables, fp: Flat, lg: Ledger, group: int, before_cache: bool) -> float:
    """Peaks of a group's devices into their slots' ``peak`` (``before_cache``: what is resident, instead); the worst lack relative to
    capacity.
    """
    n, worst = gather_members(fp, lg, group), -1e300
    for x in range(n):
        device = lg.slot[x].members
        held, most = 0.0, 0.0
        for t in range(len(fp.row)):
            if fp.row[t].group == group:
                for term in range(5):
                    held += lg.memory[t, term, device]
                most = max(most, lg.memory[t, WORKING, device])
        lg.slot[device].peak = held if before_cache else held + most
        worst = max(worst, (lg.slot[device].peak - tb.dev[device].usable) / tb.dev[device].capacity)
    return worst


@inner
def clear_group(fp: Flat, lg: Ledger, group: int) -> None:
    n = gather_members(fp, lg, group)
    for t in range(len(fp.row)):
        if fp.row[t].group == group:
            for x in range(n):
                device = lg.slot[x].members
                lg.memory[t, WORKING, device] = 0.0
                lg.memory[t, MOVED, device] = 0.0
                for term in range(5):
                    lg.memory[t, term, device] = 0.0


@inner
def add_processes(tb: Tables, fp: Flat, lg: Ledger, group: int) -> None:
    """A process on each rank, with its context and communication buffers: one for the models, one for the generation engine."""
    lg.total[0].clock += 1
    for t in range(len(fp.row)):
        if fp.row[t].group == group and t != tb.job[0].rollout:
            for r in range(fp.row[t].dp * fp.row[t].pp * fp.row[t].tp):
                device = fp.ranks[t, r]
                if lg.slot[device].mark != lg.total[0].clock:
                    lg.slot[device].mark = lg.total[0].clock
                    lg.memory[t, MODEL_PROCESS, device] = tb.job[0].process_bytes
        elif fp.row[t].group == group:
            for r in range(fp.row[t].dp * fp.row[t].pp * fp.row[t].tp):
                lg.memory[t, ROLLOUT_PROCESS, fp.ranks[t, r]] = tb.job[0].process_bytes


@inner
def add_offload(tb: Tables, fp: Flat, lg: Ledger, task: int) -> None:
    """The way in and out over the host link for what waits in the machine's memory between phases."""
    seconds = 0.0
    if tb.job[0].offload:
        for r in range(fp.row[task].dp * fp.row[task].pp * fp.row[task].tp):
            device = fp.ranks[task, r]
            seconds = max(seconds, 2.0 * lg.memory[task, MOVED, device] / tb.dev[device].host_rate)
    lg.terms[task, OFFLOAD] = seconds
    if tb.task[task].phase == INFERENCE and not owns_weights(tb, fp, task):
        add_weights_offload(tb, fp, lg, task, task)


@inner
def add_weights_offload(tb: Tables, fp: Flat, lg: Ledger, task: int, row: int) -> None:
    """The same for the weights alone of a forward pass whose weights are the training task's."""
    seconds = 0.0
    if tb.job[0].offload:
        dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
        for j in range(pp):
            held = held_params(tb, task, fp.split[task, j], j == 0, j == pp - 1) / tp
            bytes_ = held * tb.job[0].element_bytes / replicas_sharing(tb, dp)
            for i in range(dp):
                for r in range((i * pp + j) * tp, (i * pp + j + 1) * tp):
                    device = fp.ranks[task, r]
                    if not tb.dev[device].on_host:
                        seconds = max(seconds, 2.0 * bytes_ / tb.dev[device].host_rate)
    lg.terms[row, OFFLOAD] = seconds


@inner
def add_terms(lg: Ledger, row: int) -> float:
    seconds = 0.0
    for term in range(lg.terms.shape[1]):
        seconds += lg.terms[row, term]
    return seconds


@inner
def price_model_task(tb: Tables, fp: Flat, lg: Ledger, task: int) -> None:
    """Time of one training or inference task into its row."""
    lg.terms[task, :] = 0.0
    micro = 0
    for i in range(fp.row[task].dp):
        micro += fp.micro[task, i]
    if tb.task[task].training:
        pass_over_batch(tb, fp, lg, task, task, True, fp.row[task].micro_batches, tb.job[0].steps)
        after_backward(tb, fp, lg, task)
    else:
        pass_over_batch(tb, fp, lg, task, task, False, passes(fp, task, micro), 1)
        gather_for_inference(tb, fp, lg, task, task, passes(fp, task, micro))
    add_offload(tb, fp, lg, task)
    if task == tb.job[0].actor:
        last = len(fp.row)
        lg.terms[last, :] = 0.0
        pass_over_batch(tb, fp, lg, task, last, False, passes(fp, task, micro), 1)
        gather_for_inference(tb, fp, lg, task, last, passes(fp, task, micro))
        add_weights_offload(tb, fp, lg, task, last)
        lg.time[last] = add_terms(lg, last)
    lg.time[task] = add_terms(lg, task)


@inner
def passes(fp: Flat, task: int, micro: int) -> int:
    """Micro-batches of one pass over the whole batch."""
    sequences = 0
    for i in range(fp.row[task].dp):
        sequences += fp.local[task, i]
    return sequences // micro


@inner
def hold_group(tb: Tables, fp: Flat, lg: Ledger, group: int) -> None:
    """Memory of a group but for the KV cache; their slots' ``peak`` is then what is resident."""
    clear_group(fp, lg, group)
    add_processes(tb, fp, lg, group)
    for t in range(len(fp.row)):
        if fp.row[t].group == group:
            if t == tb.job[0].rollout:
                rollout_weights(tb, fp, lg)
            else:
                model_footprint(tb, fp, lg, t)


@entry
def price_group(tb: Tables, fp: Flat, lg: Ledger, group: int) -> None:
    """Time of a group's tasks, memory of its devices, its lack of memory."""
    reprice_group(tb, fp, lg, group, -1)


@entry
def reprice_group(tb: Tables, fp: Flat, lg: Ledger, group: int, changed: int) -> None:
    """Price a group again of which one task's row has changed on the same devices; −1: all of them.

    The other tasks' times stand; the rollout's only while its replicas have room for as many sequences as before.
    """
    hold_group(tb, fp, lg, group)
    short = 0.0
    for phase in range(3):
        lg.groups[group, phase] = 0.0
    for t in range(len(fp.row)):
        if fp.row[t].group != group:
            continue
        if t == tb.job[0].rollout:
            settle_memory(tb, fp, lg, group, True)
            short = admit(tb, fp, lg)
            if give_cache(tb, fp, lg) or changed < 0 or changed == t:
                price_rollout(tb, fp, lg)
                add_offload(tb, fp, lg, t)
                lg.time[t] = add_terms(lg, t)
        elif changed < 0 or changed == t:
            price_model_task(tb, fp, lg, t)
        lg.groups[group, tb.task[t].phase] += lg.time[t]
        if t == tb.job[0].actor:
            lg.groups[group, INFERENCE] += lg.time[len(fp.row)]
    over = settle_memory(tb, fp, lg, group, False)
    lg.groups[group, OVERFLOW] = max(short, over if over > ROUNDING else 0.0)


@inner
def host_overflow(tb: Tables, fp: Flat, lg: Ledger) -> float:
    """The worst machine's own lack of memory, relative: CPU devices' peaks, and what its GPUs offload."""
    need = lg.machines[0]
    need[:] = 0.0
    lg.total[0].clock += 1
    for t in range(len(fp.row)):
        for r in range(fp.row[t].dp * fp.row[t].pp * fp.row[t].tp):
            device = fp.ranks[t, r]
            m = tb.dev[device].machine
            need[m] += lg.memory[t, MOVED, device]
            if tb.dev[device].on_host and lg.slot[device].mark != lg.total[0].clock:
                lg.slot[device].mark = lg.total[0].clock
                need[m] += lg.slot[device].peak
    worst = 0.0
    for m in range(len(tb.box)):
        worst = max(worst, (need[m] - tb.box[m].memory * (1.0 - tb.job[0].reserve)) / max(tb.box[m].memory, 1.0))
    return worst if worst > ROUNDING else 0.0


@entry
def compose(tb: Tables, fp: Flat, lg: Ledger, groups: int) -> float:
    """The iteration that priced groups make, into ``lg.total``; its seconds."""
    rollout = inference = training = overflow = 0.0
    for g in range(groups):
        rollout += lg.groups[g, ROLLOUT]
        inference = max(inference, lg.groups[g, INFERENCE])
        training = max(training, lg.groups[g, TRAINING])
        overflow = max(overflow, lg.groups[g, OVERFLOW])
    update = weight_update(tb, fp, lg)
    alone = max(rollout, inference + training) if tb.job[0].asynchronous else rollout + inference + training
    lg.total[0].iteration = alone + update + tb.job[0].overhead
    lg.total[0].update = update
    lg.total[0].overflow = max(overflow, host_overflow(tb, fp, lg))
    lg.total[0].rollout, lg.total[0].inference, lg.total[0].training = rollout, inference, training
    return lg.total[0].iteration


@entry
def price_plan(tb: Tables, fp: Flat, lg: Ledger, groups: int) -> float:
    """Price every group and compose them."""
    for g in range(groups):
        reprice_group(tb, fp, lg, g, -1)
    return compose(tb, fp, lg, groups)
