"""How fast a device computes, by the number of tokens in a pass."""

from __future__ import annotations

from math import exp, log

from stages.schedule.cost.kernel.arrays import Records, Tables
from stages.schedule.cost.kernel.jit import inner


@inner
def curve_at(n: int, curve: Records, log_tokens: float) -> float:
    """FLOP/s on a curve of n points in logarithms: linear inside, the nearest point outside."""
    if log_tokens <= curve[0].tokens or n == 1:
        return exp(curve[0].rate)
    if log_tokens >= curve[n - 1].tokens:
        return exp(curve[n - 1].rate)
    k = 1
    while curve[k].tokens < log_tokens:
        k += 1
    part = (log_tokens - curve[k - 1].tokens) / (curve[k].tokens - curve[k - 1].tokens)
    return exp(curve[k - 1].rate + part * (curve[k].rate - curve[k - 1].rate))


@inner
def flops_per_s(tb: Tables, task: int, tp: int, klass: int, tokens: float) -> float:
    """FLOP/s of a class in a task's matrices, cut in ``tp`` shards, for ``tokens`` rows of activations."""
    width = tb.task[task].width
    place = min(tp, tb.points.shape[1]) - 1
    return curve_at(tb.points[width, place, klass], tb.curve[width, place, klass], log(max(tokens, 1.0)))
