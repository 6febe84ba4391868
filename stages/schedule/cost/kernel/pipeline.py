"""A training or inference task on its layout: 1F1B over unequal stages, the collectives inside, optimizer steps."""

from __future__ import annotations

from artifacts.model_spec import SOFTMAX_BACKWARD_BYTES, SOFTMAX_FORWARD_BYTES
from stages.schedule.cost.kernel.arrays import (
    ACTIVATIONS,
    BUBBLE,
    COMPUTE,
    DP,
    FULL,
    HBM,
    HOST,
    OPTIMIZER,
    PP,
    SLOWER,
    TP,
    Flat,
    Ledger,
    Tables,
)
from stages.schedule.cost.kernel.collectives import (
    add_flow,
    begin_flows,
    count_ring,
    count_tp_rings,
    load_ring,
    ring_of,
    ring_pass,
    shared_by,
    spans_machines,
)
from stages.schedule.cost.kernel.footprint import held_params
from stages.schedule.cost.kernel.jit import inner
from stages.schedule.cost.kernel.rates import flops_per_s
from stages.schedule.fleet import UNUSABLE_S

Stage = tuple[float, float, float, float, float, float, float, float]
"""Seconds of one micro-batch on a stage. Of a layer: compute, wait for its weights, traffic of its activations, all-reduces, wait for the
host to launch it. Of the stage: output head, traffic of the logits' softmax, hop to the next stage.
"""

UPDATE_BYTES = 30.0
"""Memory traffic of Adam's update of a parameter: reads gradient, master copy, two moments (16); writes the last three and the 16-bit
weight.
"""


@inner
def forward_rate(tb: Tables, lg: Ledger, task: int, tp: int, klass: int, sequences: int) -> float:
    """FLOP/s at a micro-batch, remembered while the task and ``tp`` stay the same (````lg.pace```` is cleared by the caller)."""
    if lg.pace[klass].sequences != sequences:
        lg.pace[klass].sequences = sequences
        lg.pace[klass].rate = flops_per_s(tb, task, tp, klass, sequences * tb.job[0].tokens)
    return lg.pace[klass].rate


@inner
def count_hops(tb: Tables, fp: Flat, lg: Ledger, task: int) -> None:
    """Count what crosses machines between neighbouring stages of all replicas, with what is counted already."""
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    for i in range(dp):
        for r in range(i * pp * tp, (i * pp + pp - 1) * tp):
            a, b = tb.dev[fp.ranks[task, r]].machine, tb.dev[fp.ranks[task, r + tp]].machine
            if a != b:
                add_flow(lg, a, b)


@inner
def hop_seconds(tb: Tables, fp: Flat, lg: Ledger, task: int, start: int, tp: int, bytes_: float, messages: float) -> float:
    """From the ranks at ``start`` to those of the next stage, ``bytes_`` from shard to shard: the slowest of messages·α + bytes/β."""
    slowest = 0.0
    for r in range(start, start + tp):
        source, target = fp.ranks[task, r], fp.ranks[task, r + tp]
        if source != target:
            a, b = tb.dev[source].machine, tb.dev[target].machine
            slowest = max(slowest, messages * tb.net[a, b].latency + bytes_ * tb.net[a, b].inverse * shared_by(lg, a, b))
    return slowest


@inner
def prepare_stages(tb: Tables, fp: Flat, lg: Ledger, task: int, training: bool) -> None:
    """Hops between stages into ``lg.stage``, and what shares the links of tensor-parallel rings; before :func:`stage_seconds` is asked."""
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    spans = spans_machines(tb, fp, task, dp * pp * tp)
    for c in range(len(lg.pace)):
        lg.pace[c].sequences = -1
    if pp > 1:
        begin_flows(lg)
        if spans:
            count_hops(tb, fp, lg, task)
        for i in range(dp):
            bytes_ = fp.micro[task, i] * tb.job[0].tokens * tb.task[task].hidden * tb.job[0].element_bytes
            if tb.job[0].divided_hops:
                bytes_ /= tp
            for j in range(pp - 1):
                hop = hop_seconds(tb, fp, lg, task, (i * pp + j) * tp, tp, bytes_, tb.job[0].hop_messages)
                lg.slot[i * pp + j].stage = (2.0 if training else 1.0) * hop
            lg.slot[i * pp + pp - 1].stage = 0.0
    if tp > 1 and spans:
        count_tp_rings(tb, fp, lg, task)
    else:
        begin_flows(lg)


@inner
def stage_seconds(
    tb: Tables, fp: Flat, lg: Ledger, task: int, row: int, training: bool, i: int, j: int
) -> Stage:
    """One micro-batch on a stage of a replica. ``row`` names the calibration factor: the task's own, or the old log-probabilities'."""
    pp, tp = fp.row[task].pp, fp.row[task].tp
    start, sequences = (i * pp + j) * tp, fp.micro[task, i]
    tokens = sequences * tb.job[0].tokens
    full = tb.job[0].recompute == FULL
    multiplier = (4.0 if full else 3.0) if training else 1.0  # FLOPs and traffic; a backward pass is two forward ones
    passes = (3.0 if full else 2.0) if training else 1.0
    rate, hbm, factor, slow, before = 1e300, 1e300, 0.0, 0.0, -1
    home, inside = tb.dev[fp.ranks[task, start]].machine, True
    for r in range(start, start + tp):
        device = fp.ranks[task, r]
        klass = tb.dev[device].device_class
        inside = inside and tb.dev[device].machine == home
        hbm = min(hbm, tb.dev[device].hbm)
        if klass != before:
            before = klass
            rate = min(rate, forward_rate(tb, lg, task, tp, klass, sequences))
            factor = max(factor, tb.factor[row, klass])
            slow = max(slow, tb.dev[device].slow)
    # without fused attention the masked half is computed too
    attention = sequences * tb.task[task].attention_flops * tb.job[0].tokens * tb.job[0].tokens * (1.0 if tb.job[0].flash else 2.0)
    compute = multiplier * (tb.task[task].layer_flops * tokens + attention) / tp / rate
    read = multiplier * tb.task[task].layer_params * tb.job[0].element_bytes / tp / hbm
    wait = max(0.0, read - compute)
    moved = tb.task[task].whole_moved / (tp if tb.job[0].sequence_parallel else 1) + tb.task[task].divided_moved / tp
    traffic = multiplier * moved * tokens * tb.job[0].element_bytes / hbm
    reduce = 0.0
    if tp > 1:
        times = 4.0 * passes
        bytes_ = tokens * tb.task[task].hidden * tb.job[0].element_bytes
        if inside:
            reduce = times * (tp - 1) * (tb.net[home, home].latency + bytes_ * tb.net[home, home].inverse / tp)
        else:
            load_ring(lg, fp, task, start, 1, tp)
            reduce = times * ring_pass(ring_of(tb, lg, tp), bytes_)
    work, launch, beside = compute + wait + traffic, (tb.job[0].launch + tb.job[0].launch_token * tokens) * slow, tb.job[0].beside
    forward = work / multiplier + reduce / passes
    host = max(0.0, launch - beside * forward) + max(0.0, (passes - 1.0) * launch - beside * (work + reduce - forward))
    head = softmax = 0.0
    if j == pp - 1:
        if not tb.task[task].value_head:
            each = SOFTMAX_FORWARD_BYTES + (SOFTMAX_BACKWARD_BYTES if training else 0)
            softmax = each * tb.task[task].vocab * tokens / tp / hbm
        head = (3.0 if training else 1.0) * tb.task[task].head_flops * tokens / (1 if tb.task[task].value_head else tp) / rate
    hop = lg.slot[i * pp + j].stage if pp > 1 else 0.0
    return (
        factor * compute,
        factor * wait,
        factor * traffic,
        factor * reduce,
        factor * host,
        factor * head,
        factor * softmax,
        factor * hop,
    )


@inner
def of_a_layer(stage: Stage) -> float:
    return stage[0] + stage[1] + stage[2] + stage[3] + stage[4]


@inner
def of_the_stage(stage: Stage) -> float:
    """Beside its layers."""
    return stage[5] + stage[6] + stage[7]


@inner
def pass_over_batch(tb: Tables, fp: Flat, lg: Ledger, task: int, row: int, training: bool, micro_batches: int, rounds: int) -> None:
    """Terms of ``rounds`` pipelines of ``micro_batches`` into ``lg.terms[row]``: the slowest replica's bottleneck stage, and the bubble
    around it.

    1F1B with unequal stages takes Σ_j t_j + (m − 1)·max_j t_j. ``row`` is the task's, or the last one for the old log-probabilities.
    """
    dp, pp = fp.row[task].dp, fp.row[task].pp
    prepare_stages(tb, fp, lg, task, training)
    slowest, count = -1.0, rounds * micro_batches
    for i in range(dp):
        total, worst, bottleneck = 0.0, -1.0, 0
        for j in range(pp):
            stage = stage_seconds(tb, fp, lg, task, row, training, i, j)
            seconds = fp.split[task, j] * of_a_layer(stage) + of_the_stage(stage)
            total += seconds
            if seconds > worst * SLOWER:
                worst, bottleneck = seconds, j
        whole = total + (micro_batches - 1) * worst
        if whole > slowest * SLOWER:
            slowest = whole
            compute, wait, traffic, reduce, launch, head, softmax, hop = stage_seconds(tb, fp, lg, task, row, training, i, bottleneck)
            share = fp.split[task, bottleneck]
            lg.terms[row, COMPUTE] = count * (share * compute + head)
            lg.terms[row, HBM] = count * share * wait
            lg.terms[row, ACTIVATIONS] = count * (share * traffic + softmax)
            lg.terms[row, TP] = count * share * reduce
            lg.terms[row, HOST] = count * share * launch
            lg.terms[row, PP] = count * hop
            lg.terms[row, BUBBLE] = rounds * (total - worst)


@inner
def replicas_exchange(tb: Tables, fp: Flat, lg: Ledger, task: int, gathers: float, scatters: float) -> float:
    """Seconds in which the slowest stage and shard scatters its gradients so many times over the replicas, and gathers its weights
    (gradients, where the optimizer is not sharded), all rings at one time.
    """
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    if dp == 1:
        return 0.0
    begin_flows(lg)
    if spans_machines(tb, fp, task, dp * pp * tp):
        for jk in range(pp * tp):
            load_ring(lg, fp, task, jk, pp * tp, dp)
            count_ring(tb, lg, dp)
    slowest = 0.0
    for j in range(pp):
        params = held_params(tb, task, fp.split[task, j], j == 0, j == pp - 1) / tp
        gathered = params * (tb.job[0].element_bytes if tb.job[0].optimizer_sharded else tb.job[0].gradient_bytes)
        for k in range(tp):
            load_ring(lg, fp, task, j * tp + k, pp * tp, dp)
            ring = ring_of(tb, lg, dp)
            slowest = max(slowest, scatters * ring_pass(ring, params * tb.job[0].gradient_bytes) + gathers * ring_pass(ring, gathered))
    return slowest


@inner
def missing_links(tb: Tables, fp: Flat, lg: Ledger, task: int) -> float:
    """``UNUSABLE_S`` where a ring over the replicas has a pair without a usable link; else 0."""
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    if dp > 1 and spans_machines(tb, fp, task, dp * pp * tp):
        begin_flows(lg)
        for jk in range(pp * tp):
            load_ring(lg, fp, task, jk, pp * tp, dp)
            if ring_of(tb, lg, dp)[1] >= UNUSABLE_S:
                return UNUSABLE_S
    return 0.0


@inner
def worst_factor(tb: Tables, fp: Flat, task: int, row: int) -> float:
    """Calibration of a task's slowest class."""
    factor = 0.0
    for r in range(fp.row[task].dp * fp.row[task].pp * fp.row[task].tp):
        factor = max(factor, tb.factor[row, tb.dev[fp.ranks[task, r]].device_class])
    return factor


@inner
def gather_for_inference(tb: Tables, fp: Flat, lg: Ledger, task: int, row: int, micro_batches: int) -> None:
    """Fully sharded weights are gathered for every micro-batch. Replicas that no usable link joins are no process group: ``UNUSABLE_S``."""
    if tb.job[0].patchy and not tb.job[0].fully_sharded:
        lg.terms[row, DP] = missing_links(tb, fp, lg, task)
    if tb.job[0].fully_sharded:
        lg.terms[row, DP] = worst_factor(tb, fp, task, row) * replicas_exchange(tb, fp, lg, task, float(micro_batches), 0.0)


@inner
def after_backward(tb: Tables, fp: Flat, lg: Ledger, task: int) -> None:
    """Gradient synchronisation and update of every optimizer step, on the slowest stage and shard.

    Fully sharded weights are gathered for every pass of every micro-batch, gradients scattered after each.
    """
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    gathers = scatters = 1.0
    if tb.job[0].fully_sharded:
        scatters = float(fp.row[task].micro_batches)
        gathers = scatters * (3.0 if tb.job[0].recompute == FULL else 2.0)
    update = 0.0
    shards = dp if tb.job[0].optimizer_sharded else 1
    for j in range(pp):
        params = held_params(tb, task, fp.split[task, j], j == 0, j == pp - 1) / tp
        slowest = 1e300
        for i in range(dp):
            for k in range(tp):
                slowest = min(slowest, tb.dev[fp.ranks[task, (i * pp + j) * tp + k]].hbm)
        update = max(update, params / shards * UPDATE_BYTES / slowest)
    factor = worst_factor(tb, fp, task, task)
    lg.terms[task, DP] = tb.job[0].steps * factor * replicas_exchange(tb, fp, lg, task, gathers, scatters)
    lg.terms[task, OPTIMIZER] = tb.job[0].steps * factor * update
