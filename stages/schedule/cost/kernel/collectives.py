"""Rings: all-reduce, reduce-scatter and all-gather, flat or in two levels; and the transfers that share a link at the same time.

A link between two machines is one: what crosses it at the same time shares it. Inside a machine every pair of devices has its own.
"""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import Flat, Ledger, Tables
from stages.schedule.cost.kernel.jit import inner

Ring = tuple[float, float, float, float, float, float, float, float, float]
"""(n, α, 1/β) of the flat ring; (m, α, 1/β) inside a machine and (g, α, 1/β) across machines, m = 0 where two levels are not possible."""


@inner
def begin_flows(lg: Ledger) -> None:
    """Forget the transfers counted before."""
    lg.total[0].clock += 1


@inner
def add_flow(lg: Ledger, source: int, target: int) -> None:
    if lg.pair[source, target].stamp != lg.total[0].clock:
        lg.pair[source, target].stamp = lg.total[0].clock
        lg.pair[source, target].flows = 0.0
    lg.pair[source, target].flows += 1.0


@inner
def shared_by(lg: Ledger, source: int, target: int) -> float:
    """How many transfers counted cross a pair of machines; 1 inside a machine."""
    if source == target or lg.pair[source, target].stamp != lg.total[0].clock:
        return 1.0
    return lg.pair[source, target].flows


@inner
def load_ring(lg: Ledger, fp: Flat, task: int, start: int, stride: int, n: int) -> None:
    """The ring's devices into ``lg.ring``, sorted: devices of a machine lie next to each other."""
    for s in range(n):
        device = fp.ranks[task, start + s * stride]
        k = s
        while k > 0 and lg.slot[k - 1].ring > device:
            lg.slot[k].ring = lg.slot[k - 1].ring
            k -= 1
        lg.slot[k].ring = device


@inner
def spans_machines(tb: Tables, fp: Flat, task: int, ranks: int) -> bool:
    home = tb.dev[fp.ranks[task, 0]].machine
    away = 0
    for r in range(1, ranks):
        away += tb.dev[fp.ranks[task, r]].machine != home
    return away > 0


@inner
def count_ring(tb: Tables, lg: Ledger, n: int) -> None:
    """Count the crossings of the ring that lies in ``lg.ring``."""
    for s in range(n):
        a, b = tb.dev[lg.slot[s].ring].machine, tb.dev[lg.slot[s + 1 if s + 1 < n else 0].ring].machine
        if a != b:
            add_flow(lg, a, b)


@inner
def count_tp_rings(tb: Tables, fp: Flat, lg: Ledger, task: int) -> None:
    """Count the crossings of all tensor-parallel rings of a task; most have none."""
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    begin_flows(lg)
    if tp == 1:
        return
    for unit in range(dp * pp):
        home = tb.dev[fp.ranks[task, unit * tp]].machine
        crossing = False
        for k in range(1, tp):
            if tb.dev[fp.ranks[task, unit * tp + k]].machine != home:
                crossing = True
        if crossing:
            load_ring(lg, fp, task, unit * tp, 1, tp)
            count_ring(tb, lg, tp)


@inner
def ring_of(tb: Tables, lg: Ledger, n: int) -> Ring:
    """Slowest latency and slowest bandwidth of the ring that lies in ``lg.ring``, flat and by level."""
    alpha = inverse = alpha_in = inverse_in = alpha_out = inverse_out = 0.0
    runs, run, equal, size = 0, 0, True, 0
    for s in range(n):
        a, b = tb.dev[lg.slot[s].ring].machine, tb.dev[lg.slot[s + 1 if s + 1 < n else 0].ring].machine
        run += 1
        if a == b:
            alpha_in = max(alpha_in, tb.net[a, a].latency)
            inverse_in = max(inverse_in, tb.net[a, a].inverse)
            if s + 1 < n:
                continue
        else:
            alpha_out = max(alpha_out, tb.net[a, b].latency)
            inverse_out = max(inverse_out, tb.net[a, b].inverse * shared_by(lg, a, b))
        runs += 1
        if size == 0:
            size = run
        elif size != run:
            equal = False
        run = 0
    alpha, inverse = max(alpha_in, alpha_out), max(inverse_in, inverse_out)
    if runs == 1 or not equal or size == 1:
        return float(n), alpha, inverse, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    return float(n), alpha, inverse, float(size), alpha_in, inverse_in, float(runs), alpha_out, inverse_out


@inner
def ring_pass(ring: Ring, bytes_: float) -> float:
    """Reduce-scatter or all-gather: (n−1)·(α + bytes/(n·β)); the cheaper of one ring and two levels (inside machines, then across)."""
    n, alpha, inverse, m, alpha_in, inverse_in, g, alpha_out, inverse_out = ring
    if n <= 1.0:
        return 0.0
    flat = (n - 1.0) * (alpha + bytes_ * inverse / n)
    if m == 0.0:
        return flat
    two = (m - 1.0) * (alpha_in + bytes_ * inverse_in / m) + (g - 1.0) * (alpha_out + bytes_ * inverse_out / g)
    return min(flat, two)
