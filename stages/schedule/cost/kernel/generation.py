"""Rollout: continuous batching on replicas of unequal speed and room, with the tail in which the last responses end.

A decode step reads the weights or computes, whichever takes longer, then reads the KV cache of every sequence in flight or computes its
attention; it pays two all-reduces a layer, and waits for the host. A replica of pp stages keeps pp groups of sequences in flight; rings and
hops that cross a pair of machines share it.
"""

from __future__ import annotations

from math import log

from stages.schedule.cost.kernel.arrays import DECODE, HOST, PP, PREFILL, SLOWER, TAIL, TP, WEIGHTS, WORKING, Flat, Floats, Ledger, Tables
from stages.schedule.cost.kernel.collectives import Ring, count_tp_rings, load_ring, ring_of, ring_pass, shared_by
from stages.schedule.cost.kernel.footprint import held_params, keep
from stages.schedule.cost.kernel.jit import inner
from stages.schedule.cost.kernel.pipeline import count_hops, hop_seconds
from stages.schedule.cost.kernel.rates import curve_at

Pace = tuple[float, float, float]
"""Bytes/s of memory, and FLOP/s at the best point of the curve, of a stage's slowest shards."""
Step = tuple[float, float, float, float]
"""Seconds of a decode step: computing and reading, all-reduces, hops, waiting for the host."""
Spent = tuple[float, float, float, float, float, float]
"""Seconds of a replica: prefill, decode, all-reduces, hops, tail, waiting for the host."""
DISTINCT = 64
"""Kinds of replicas remembered while a plan is priced."""
POWER = 1.0823232337111382
"""ζ(4) = π⁴/90: no polynomial with rational coefficients vanishes at it, and its powers stay small."""


@inner
def rollout_weights(tb: Tables, fp: Flat, lg: Ledger) -> None:
    """Weights of the generation engines, and their own working memory."""
    t = tb.job[0].rollout
    dp, pp, tp = fp.row[t].dp, fp.row[t].pp, fp.row[t].tp
    for j in range(pp):
        bytes_ = held_params(tb, t, fp.split[t, j], j == 0, j == pp - 1) * tb.job[0].element_bytes / tp
        for i in range(dp):
            for r in range((i * pp + j) * tp, (i * pp + j + 1) * tp):
                device = fp.ranks[t, r]
                lg.memory[t, WORKING, device] = tb.job[0].generation_bytes + keep(tb, lg, t, WEIGHTS, device, bytes_)


@inner
def kv_of_sequence(tb: Tables, fp: Flat, stage: int, tokens: float) -> float:
    """KV cache of one sequence on a shard of a stage."""
    t = tb.job[0].rollout
    return fp.split[t, stage] * tb.task[t].kv_bytes * tokens / fp.row[t].tp


@inner
def round_down(count: int) -> int:
    """To four binary digits: replicas that differ by less than 6 % in room are one kind, and none is promised room it has not."""
    step = 1
    while count // step >= 16:
        step *= 2
    return count // step * step


@inner
def admit(tb: Tables, fp: Flat, lg: Ledger) -> float:
    """How many sequences each replica can run at once, from the memory its scarcest shard has left, into ``lg.in_flight``.

    ``peak`` of the slots is what is resident so far. Returns the worst replica's lack of room for one sequence of maximum length, relative
    to its memory.
    """
    t = tb.job[0].rollout
    dp, pp, tp = fp.row[t].dp, fp.row[t].pp, fp.row[t].tp
    worst = 0.0
    for i in range(dp):
        cap, short, room, usable = tb.job[0].most_in_flight, 0.0, 1e300, 1e300
        for j in range(pp):
            longest = kv_of_sequence(tb, fp, j, tb.job[0].sequence_max)
            each = kv_of_sequence(tb, fp, j, tb.job[0].prompt_mean + tb.job[0].response_mean) if tb.job[0].continuous else longest
            free = 1e300
            for r in range((i * pp + j) * tp, (i * pp + j + 1) * tp):
                device = fp.ranks[t, r]
                free = min(free, tb.dev[device].usable - lg.slot[device].peak - lg.memory[t, WORKING, device])
                usable = min(usable, tb.dev[device].usable)
            cap = min(cap, int(free // each)) if free > each else 1
            short = max(short, longest - free)
            room = min(room, max(free, longest))
        lg.slot[i].in_flight = round_down(cap)
        lg.slot[i].kv = room
        lg.slot[i].shortfall = max(0.0, short)
        worst = max(worst, lg.slot[i].shortfall / usable)
    return worst


@inner
def give_cache(tb: Tables, fp: Flat, lg: Ledger) -> bool:
    """KV cache of each replica for the sequences it runs at once, each at its maximum length, as far as there is room.

    Returns whether any replica now runs another number of sequences at once than when last priced.
    """
    t, changed = tb.job[0].rollout, False
    pp, tp = fp.row[t].pp, fp.row[t].tp
    for i in range(fp.row[t].dp):
        lg.slot[i].in_flight = min(lg.slot[i].in_flight, fp.local[t, i])
        changed = changed or lg.slot[i].priced != lg.slot[i].in_flight
        lg.slot[i].priced = lg.slot[i].in_flight
        most, room = 0.0, lg.slot[i].kv
        for j in range(pp):
            cache = min(lg.slot[i].in_flight * kv_of_sequence(tb, fp, j, tb.job[0].sequence_max), room)
            most = max(most, cache)
            for r in range((i * pp + j) * tp, (i * pp + j + 1) * tp):
                lg.memory[t, WORKING, fp.ranks[t, r]] += cache
        lg.slot[i].kv = most
    return changed


@inner
def stage_step(
    tb: Tables, fp: Flat, lg: Ledger, i: int, j: int, ring: Ring, pace: Pace, tokens: float, context: float
) -> tuple[float, float, float]:
    """(work, all-reduces, hop) of one decode step of stage j with ``tokens`` sequences at ``context`` tokens."""
    t = tb.job[0].rollout
    pp, tp = fp.row[t].pp, fp.row[t].tp
    layers, last = fp.split[t, j], j == pp - 1
    weights = layers * tb.task[t].layer_params * tb.job[0].element_bytes + (
        tb.task[t].vocab * tb.task[t].hidden * tb.job[0].element_bytes if last else 0.0
    )
    hbm, best, _ = pace
    flops = tokens * (layers * tb.task[t].layer_flops + (tb.task[t].head_flops if last else 0.0))
    matrices = max(weights / hbm, flops / slowest_rate(tb, fp, lg, i, j, tokens))
    seen = tokens * context * layers
    attention = max(seen * tb.task[t].kv_bytes / hbm, seen * 2.0 * tb.task[t].attention_flops / best)
    work = (matrices + attention) / tp
    return work, layers * exchange(tb, ring, tokens), hop(tb, fp, lg, i, j, tokens)


@inner
def exchange(tb: Tables, ring: Ring, tokens: float) -> float:
    """Two all-reduces of one layer's activations."""
    if ring[0] <= 1.0:
        return 0.0
    return 4.0 * ring_pass(ring, tokens * tb.task[tb.job[0].rollout].hidden * tb.job[0].element_bytes)


@inner
def hop(tb: Tables, fp: Flat, lg: Ledger, i: int, j: int, tokens: float) -> float:
    """Activations to the next stage, each shard its part; 0 from the last."""
    t = tb.job[0].rollout
    pp, tp = fp.row[t].pp, fp.row[t].tp
    if j == pp - 1:
        return 0.0
    return hop_seconds(tb, fp, lg, t, (i * pp + j) * tp, tp, tokens * tb.task[t].hidden * tb.job[0].element_bytes / tp, 1.0)


@inner
def slowest_rate(tb: Tables, fp: Flat, lg: Ledger, i: int, j: int, tokens: float) -> float:
    """FLOP/s of the slowest shard of a stage in a pass of ``tokens``."""
    t = tb.job[0].rollout
    pp, tp = fp.row[t].pp, fp.row[t].tp
    start, width, place = (i * pp + j) * tp, tb.task[t].width, min(tp, tb.points.shape[1]) - 1
    size, rate, before = log(max(tokens, 1.0)), 1e300, -1
    for r in range(start, start + tp):
        klass = tb.dev[fp.ranks[t, r]].device_class
        if klass != before:
            before = klass
            rate = min(rate, curve_at(tb.points[width, place, klass], tb.curve[width, place, klass], size))
    return rate


@inner
def replica_ring(tb: Tables, fp: Flat, lg: Ledger, i: int, j: int) -> tuple[Ring, Pace]:
    """The tensor-parallel ring of a stage, its slowest shard's rates, and how slow the replica's slowest host is."""
    t = tb.job[0].rollout
    pp, tp = fp.row[t].pp, fp.row[t].tp
    start, hbm, best, slow = (i * pp + j) * tp, 1e300, 1e300, 0.0
    for r in range(i * pp * tp, (i + 1) * pp * tp):
        slow = max(slow, tb.dev[fp.ranks[t, r]].slow)
    for r in range(start, start + tp):
        hbm = min(hbm, tb.dev[fp.ranks[t, r]].hbm)
        best = min(best, tb.dev[fp.ranks[t, r]].best)
    load_ring(lg, fp, t, start, 1, tp)
    return ring_of(tb, lg, tp), (hbm, best, slow)


@inner
def whole_step(tb: Tables, fp: Flat, lg: Ledger, i: int, ring: Ring, pace: Pace, tokens: float, context: float) -> Step:
    """Until every one of ``tokens`` sequences has its next token: what the devices do, and the host's time beside it."""
    work, comm, hops = on_devices(tb, fp, lg, i, ring, pace, tokens, context)
    job, slow = tb.job[0], pace[2]
    launch = max(0.0, slow * tb.task[job.rollout].layers * job.step_layer - job.beside * (work + comm + hops))
    return work, comm, hops, slow * (job.step_gap + job.step_each * tokens) + launch


@inner
def on_devices(
    tb: Tables, fp: Flat, lg: Ledger, i: int, ring: Ring, pace: Pace, tokens: float, context: float
) -> tuple[float, float, float]:
    """(work, all-reduces, hops) of a step.

    One stage: its step. More: each of pp groups passes every stage; the slowest stage serves all groups, or one group's way is longest.
    ``ring`` and ``pace`` are stage 0's.
    """
    pp = fp.row[tb.job[0].rollout].pp
    if pp == 1:
        return stage_step(tb, fp, lg, i, 0, ring, pace, tokens, context)
    way = (0.0, 0.0, 0.0)
    most = (0.0, 0.0, 0.0)
    for j in range(pp):
        here, rate = (ring, pace) if j == 0 else replica_ring(tb, fp, lg, i, j)
        s = stage_step(tb, fp, lg, i, j, here, rate, max(tokens / pp, min(tokens, 1.0)), context)
        way = (way[0] + s[0], way[1] + s[1], way[2] + s[2])
        if s[0] + s[1] + s[2] > most[0] + most[1] + most[2]:
            most = s
    groups = min(float(pp), max(tokens, 1.0))
    if groups * (most[0] + most[1] + most[2]) > way[0] + way[1] + way[2]:
        return groups * most[0], groups * most[1], groups * most[2]
    return way


@inner
def prefill(tb: Tables, fp: Flat, lg: Ledger, i: int, sequences: int, in_flight: int) -> float:
    """Computing the prompts, in passes of the engine's size."""
    t = tb.job[0].rollout
    pp, tp = fp.row[t].pp, fp.row[t].tp
    tokens = sequences * tb.job[0].prompt_mean
    at_once = min(tokens, tb.job[0].prefill_tokens) if tb.job[0].prefill_tokens > 0 else in_flight * tb.job[0].prompt_mean
    passes = tokens / at_once
    way = most = 0.0
    for j in range(pp):
        ring, (hbm, _, _) = replica_ring(tb, fp, lg, i, j)
        layers, last = fp.split[t, j], j == pp - 1
        attention = sequences * tb.task[t].attention_flops * tb.job[0].prompt_mean * tb.job[0].prompt_mean
        flops = layers * (tb.task[t].layer_flops * tokens + attention) + (tb.task[t].head_flops * sequences if last else 0.0)
        weights = layers * tb.task[t].layer_params * tb.job[0].element_bytes + (
            tb.task[t].vocab * tb.task[t].hidden * tb.job[0].element_bytes if last else 0.0
        )
        work = max(flops / tp / slowest_rate(tb, fp, lg, i, j, at_once), passes * weights / tp / hbm)
        work += layers * tokens * (tb.task[t].whole_moved + tb.task[t].divided_moved / tp) * tb.job[0].element_bytes / hbm
        seconds = work + passes * (layers * exchange(tb, ring, at_once) + hop(tb, fp, lg, i, j, at_once))
        way += seconds / passes
        most = max(most, seconds)
    return most + way - most / passes


@inner
def longest_of(tb: Tables, count: int) -> float:
    """Expected tokens of the longest of ``count`` responses: ∫ 1 − (1 − S)^count."""
    total = 0.0
    for q in range(len(tb.node)):
        total += tb.node[q].weight * (1.0 - (1.0 - tb.node[q].survival) ** count)
    return total


@inner
def replica_seconds(tb: Tables, fp: Flat, lg: Ledger, i: int, sequences: int, in_flight: int) -> Spent:
    """A replica's seconds for ``sequences`` responses with at most ``in_flight`` at once, calibration
    aside.

    Continuous batching keeps the house full for (n − c)·mean/c steps, then the last c drain: at token s of the response c·S(s) of them are
    expected to run, and a step takes place with the probability that any does, 1 − (1 − S(s))^c. The tail is what draining costs above
    mean-length steps at full house. A static batch runs at full width until its longest response ends.
    """
    c = min(in_flight, sequences)
    ring, pace = replica_ring(tb, fp, lg, i, 0)
    first = prefill(tb, fp, lg, i, sequences, c)
    if not tb.job[0].continuous:
        longest = longest_of(tb, c)
        steps = -(-sequences // c) * longest
        work, comm, hops, host = whole_step(tb, fp, lg, i, ring, pace, float(c), tb.job[0].prompt_mean + longest / 2.0)
        return first, steps * work, steps * comm, steps * hops, 0.0, steps * host
    full = (sequences - c) * tb.job[0].response_mean / c
    work, comm, hops, host = whole_step(tb, fp, lg, i, ring, pace, float(c), tb.job[0].prompt_mean + tb.job[0].response_age)
    drain_work = drain_comm = drain_hops = drain_host = 0.0
    for q in range(len(tb.node)):
        alive = tb.node[q].survival
        some = 1.0 - (1.0 - alive) ** c
        if some <= 0.0:
            continue
        w, m, p, h = whole_step(tb, fp, lg, i, ring, pace, c * alive / some, tb.job[0].prompt_mean + tb.node[q].tokens)
        chance = some * tb.node[q].weight
        drain_work += w * chance
        drain_comm += m * chance
        drain_hops += p * chance
        drain_host += h * chance
    tail = max(0.0, drain_work - tb.job[0].response_mean * work)
    return first, full * work + drain_work - tail, full * comm + drain_comm, full * hops + drain_hops, tail, full * host + drain_host


@inner
def rollout_factor(tb: Tables, fp: Flat, i: int) -> float:
    """Calibration of a replica: its worst shard's."""
    t = tb.job[0].rollout
    size, factor = fp.row[t].pp * fp.row[t].tp, 0.0
    for r in range(i * size, (i + 1) * size):
        factor = max(factor, tb.factor[t, tb.dev[fp.ranks[t, r]].device_class])
    return factor


@inner
def signature(tb: Tables, fp: Flat, lg: Ledger, i: int) -> float:
    """A number that replicas of equal hardware share (and, but for a coincidence of a float's bits, no others).

    A polynomial in a transcendental number: its coefficients are the classes of each stage's ring, the links of its edges and its hops.
    """
    t = tb.job[0].rollout
    pp, tp = fp.row[t].pp, fp.row[t].tp
    value, at = 0.0, 1.0
    for j in range(pp):
        start = (i * pp + j) * tp
        load_ring(lg, fp, t, start, 1, tp)
        for s in range(tp):
            value += at * (tb.dev[lg.slot[s].ring].device_class + 1.0)
            value, at = add_link(tb, lg, lg.slot[s].ring, lg.slot[s + 1 if s + 1 < tp else 0].ring, value, at * POWER)
        if j < pp - 1:
            for r in range(start, start + tp):
                value, at = add_link(tb, lg, fp.ranks[t, r], fp.ranks[t, r + tp], value, at)
    return value


@inner
def add_link(tb: Tables, lg: Ledger, source: int, target: int, value: float, at: float) -> tuple[float, float]:
    """The two coefficients of a link in :func:`signature`; (value, next power)."""
    a, b = tb.dev[source].machine, tb.dev[target].machine
    value += at * 1e3 * tb.net[a, b].latency + at * POWER * 1e9 * tb.net[a, b].inverse * shared_by(lg, a, b)
    return value, at * POWER * POWER


@inner
def known_seconds(tb: Tables, fp: Flat, lg: Ledger, i: int, known: int) -> int:
    """Place in ``lg.seen`` of a replica like this one with this share, or −1."""
    mark = signature(tb, fp, lg, i)
    c = min(lg.slot[i].in_flight, fp.local[tb.job[0].rollout, i])
    for s in range(known):
        if lg.seen[s, 0] == mark and lg.seen[s, 1] == c and lg.seen[s, 2] == fp.local[tb.job[0].rollout, i]:
            return s
    return -1


@inner
def remember(tb: Tables, fp: Flat, lg: Ledger, i: int, known: int, seconds: float) -> int:
    """Remember a replica's seconds while there is room; how many are known."""
    if known == len(lg.seen):
        return known
    lg.seen[known, 0] = signature(tb, fp, lg, i)
    lg.seen[known, 1] = min(lg.slot[i].in_flight, fp.local[tb.job[0].rollout, i])
    lg.seen[known, 2] = fp.local[tb.job[0].rollout, i]
    lg.seen[known, 3] = seconds
    return known + 1


@inner
def count_transfers(tb: Tables, fp: Flat, lg: Ledger) -> None:
    """Count what crosses machines: with a group of sequences on every stage, rings and hops go on together."""
    t = tb.job[0].rollout
    count_tp_rings(tb, fp, lg, t)
    if fp.row[t].pp > 1:
        count_hops(tb, fp, lg, t)


@inner
def price_rollout(tb: Tables, fp: Flat, lg: Ledger) -> None:
    """Terms of the slowest replica into the rollout's row; equal replicas are priced once."""
    t = tb.job[0].rollout
    count_transfers(tb, fp, lg)
    lg.terms[t, :] = 0.0
    known, slowest = 0, -1.0
    for i in range(fp.row[t].dp):
        if known_seconds(tb, fp, lg, i, known) >= 0:
            continue
        first, decode, comm, hops, tail, host = replica_seconds(tb, fp, lg, i, fp.local[t, i], lg.slot[i].in_flight)
        factor = rollout_factor(tb, fp, i)
        seconds = factor * (first + decode + comm + hops + tail + host)
        known = remember(tb, fp, lg, i, known, seconds)
        if seconds > slowest * SLOWER:
            slowest = seconds
            lg.terms[t, PREFILL], lg.terms[t, DECODE], lg.terms[t, TP] = factor * first, factor * decode, factor * comm
            lg.terms[t, PP], lg.terms[t, TAIL] = factor * hops, factor * tail
            lg.terms[t, HOST] = factor * host


@inner
def share_costs(tb: Tables, fp: Flat, lg: Ledger, costs: Floats) -> float:
    """Seconds of each replica's present share over its sequences into ``costs``; the slowest replica's seconds."""
    t = tb.job[0].rollout
    count_transfers(tb, fp, lg)
    known, slowest = 0, 0.0
    for i in range(fp.row[t].dp):
        place = known_seconds(tb, fp, lg, i, known)
        if place >= 0:
            seconds = lg.seen[place, 3]
        else:
            first, decode, comm, hops, tail, host = replica_seconds(tb, fp, lg, i, fp.local[t, i], lg.slot[i].in_flight)
            seconds = rollout_factor(tb, fp, i) * (first + decode + comm + hops + tail + host)
            known = remember(tb, fp, lg, i, known, seconds)
        costs[i] = seconds / fp.local[t, i]
        slowest = max(slowest, seconds)
    return slowest
