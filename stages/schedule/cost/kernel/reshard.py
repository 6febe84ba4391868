"""Bringing the trained weights to the rollout replicas: who fetches which layers from whom, and how long that takes."""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import Flat, Ledger, Tables
from stages.schedule.cost.kernel.footprint import held_params
from stages.schedule.cost.kernel.jit import inner

COUNT, SENT, HERE, OUTSIDE, SLOW_HBM, BRINGS = range(6)


@inner
def weight_update(tb: Tables, fp: Flat, lg: Ledger) -> float:
    """Seconds of one weight update: max over receiving machines of Σ over stages (α + bytes/β), and over sending machines likewise.

    A machine fetches each stage it has not once, from the nearest replica of the actor that holds it; inside the machine each device gets
    what its own rank does not hold over the link between them, and writes its shard at memory speed. A tensor-parallel replica that spans
    machines brings each only its part.
    """
    r, a = tb.job[0].rollout, tb.job[0].actor
    ranks = fp.row[r].dp * fp.row[r].pp * fp.row[r].tp
    dp, pp, tp = fp.row[a].dp, fp.row[a].pp, fp.row[a].tp
    shards = fp.row[r].pp * fp.row[r].tp
    machines = lg.machines
    machines[COUNT, :] = 0.0
    machines[SENT, :] = 0.0
    machines[HERE, :] = 0.0
    machines[OUTSIDE, :] = 0.0
    lg.total[0].clock += 1
    for x in range(dp * pp * tp):
        device = fp.ranks[a, x]
        lg.slot[device].mark = lg.total[0].clock
        machines[HERE, tb.dev[device].machine] = 1.0
    factor = 0.0
    for x in range(ranks):
        device = fp.ranks[r, x]
        m = tb.dev[device].machine
        if machines[COUNT, m] == 0.0:
            machines[SLOW_HBM, m] = tb.dev[device].hbm
        machines[COUNT, m] += 1.0
        machines[SLOW_HBM, m] = min(machines[SLOW_HBM, m], tb.dev[device].hbm)
        factor = max(factor, tb.factor[len(tb.task) + 1, tb.dev[device].device_class])
        if lg.slot[device].mark != lg.total[0].clock:
            machines[OUTSIDE, m] = 1.0
    needed = held_params(tb, r, tb.task[r].layers, True, True) * tb.job[0].element_bytes / shards
    slowest = 0.0
    for m in range(len(tb.box)):
        if machines[COUNT, m] == 0.0:
            continue
        share = min(1.0, machines[COUNT, m] / shards)
        fetched = received = 0.0
        machines[BRINGS, :] = 0.0
        for j in range(pp):
            bytes_ = share * tb.job[0].element_bytes * held_params(tb, a, fp.split[a, j], j == 0, j == pp - 1)
            best, source, before = 1e300, m, -1
            for i in range(dp):
                n = tb.dev[fp.ranks[a, (i * pp + j) * tp]].machine
                if n == before:
                    continue
                before = n
                if n == m:
                    best, source = 0.0, m
                    break
                seconds = tb.net[n, m].latency + bytes_ * tb.net[n, m].inverse
                if seconds < best:
                    best, source = seconds, n
            if source != m:
                machines[BRINGS, source] += best
                machines[SENT, source] += bytes_
                received += bytes_
                fetched = max(fetched, machines[BRINGS, source])
        fetched = max(fetched, received * tb.box[m].receives)
        missing = 1.0 if machines[OUTSIDE, m] else 1.0 - 1.0 / (pp * tp)
        inside = 0.0
        if missing > 0.0 and not (machines[HERE, m] == 0.0 and machines[COUNT, m] == 1.0):
            inside = tb.net[m, m].latency + missing * needed * tb.net[m, m].inverse
        slowest = max(slowest, fetched + inside + needed / machines[SLOW_HBM, m])
    for m in range(len(tb.box)):
        slowest = max(slowest, machines[SENT, m] * tb.box[m].sends)
    return factor * (slowest + export_seconds(tb, fp))


@inner
def export_seconds(tb: Tables, fp: Flat) -> float:
    """What the actor's slowest host does with every tensor, and, where there are stages, the messages that go there and back between
    neighbours (first shards) for each: Σ over the hops of the replica with the longest way."""
    a = tb.job[0].actor
    dp, pp, tp = fp.row[a].dp, fp.row[a].pp, fp.row[a].tp
    slow = way = 0.0
    for i in range(dp):
        hops = 0.0
        for j in range(pp):
            for k in range(tp):
                slow = max(slow, tb.dev[fp.ranks[a, (i * pp + j) * tp + k]].slow)
            if j > 0:
                hops += tb.net[tb.dev[fp.ranks[a, (i * pp + j - 1) * tp]].machine, tb.dev[fp.ranks[a, (i * pp + j) * tp]].machine].latency
        way = max(way, hops)
    return slow * (tb.job[0].export + (tb.job[0].gather if pp > 1 else 0.0)) + way * tb.job[0].gather_trips
