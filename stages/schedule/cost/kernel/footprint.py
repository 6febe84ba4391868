"""What a rank holds all the time, and what it needs while a task runs. Bytes.

Training activations: Korthikanti et al., arXiv 2205.05198, equations 2 and 4, figure 1.
"""

from __future__ import annotations

from stages.schedule.cost.kernel.arrays import FULL, GRADIENTS, MOVED, NONE, SELECTIVE, STATE, WEIGHTS, WORKING, Flat, Ledger, Tables
from stages.schedule.cost.kernel.jit import entry, inner


@inner
def held_params(tb: Tables, task: int, layers: int, first: bool, last: bool) -> float:
    """Parameters of a pipeline stage."""
    held = layers * tb.task[task].layer_params
    if first:
        held += tb.task[task].first_params
    if last:
        held += tb.task[task].last_params
    if first and last:
        held += tb.task[task].both_params
    return held


@entry
def kept_by_layer(recompute: int, flash: int, tokens: float, micro: int, hidden: float, heads: int, tp: int, element_bytes: float) -> float:
    """Activations one layer keeps for the backward pass of a micro-batch of ``micro`` sequences of ``tokens``.

    none: s·b·h·(10 + 24/t + 5·a·s/(h·t)), without the last term where the attention matrix is never stored; selective (with sequence
    parallelism): 34·s·b·h/t; full: the layer's input, 2·s·b·h. The published formulas are for 2-byte elements and scale with the element.
    """
    unit = tokens * micro * hidden * element_bytes / 2.0
    if recompute == FULL:
        return 2.0 * unit
    if recompute == SELECTIVE:
        return 34.0 * unit / tp
    matrix = 0.0 if flash else 5.0 * heads * tokens / (hidden * tp)
    return unit * (10.0 + 24.0 / tp + matrix)


@entry
def padded_vocab(vocab: int, tp: int) -> int:
    """Megatron pads the vocabulary to a multiple of 128·tp."""
    multiple = 128 * tp
    return -(-vocab // multiple) * multiple


@inner
def optimizer_bytes(tb: Tables, dp: int) -> float:
    """Adam's state of a parameter: 16-bit weights keep a 32-bit master copy and two moments (12), 32-bit weights the moments (8)."""
    whole = 12.0 if tb.job[0].element_bytes < 4 else 8.0
    return whole / dp if tb.job[0].optimizer_sharded else whole


@inner
def replicas_sharing(tb: Tables, dp: int) -> float:
    """Replicas over which a weight and its gradient are divided."""
    return float(dp) if tb.job[0].fully_sharded else 1.0


@inner
def working_bytes(tb: Tables, task: int, layers: int, last: bool, in_flight: int, tp: int, micro: int) -> float:
    """Needed on a rank of a stage while its training or inference runs, weights aside: activations, logits, their gradient."""
    tokens = micro * tb.job[0].tokens
    training = tb.task[task].training == 1
    logits = 0.0
    if tb.job[0].fully_sharded:  # the layer in use and the next, gathered
        logits = 2.0 * tb.task[task].layer_params * tb.job[0].element_bytes / tp
    if last and not tb.task[task].value_head:
        logits += tokens * padded_vocab(tb.task[task].vocab, tp) / tp * 4.0 * (2.0 if training else 1.0)
    if not training:
        return tokens * tb.job[0].element_bytes * (2.0 * tb.task[task].hidden + tb.task[task].wide / tp) + logits
    kept = (
        layers
        * in_flight
        * kept_by_layer(
            tb.job[0].recompute,
            tb.job[0].flash,
            tb.job[0].tokens,
            micro,
            tb.task[task].hidden,
            tb.task[task].heads,
            tp,
            tb.job[0].element_bytes,
        )
    )
    if tb.job[0].recompute == FULL:
        kept += kept_by_layer(
            NONE, tb.job[0].flash, tb.job[0].tokens, micro, tb.task[task].hidden, tb.task[task].heads, tp, tb.job[0].element_bytes
        )
    return kept + logits


@inner
def owns_weights(tb: Tables, fp: Flat, task: int) -> bool:
    """Inference of a role that its group also trains uses the trained weights."""
    other = tb.task[task].shares_weights_with
    return other < 0 or fp.row[other].group != fp.row[task].group


@inner
def keep(tb: Tables, lg: Ledger, task: int, term: int, device: int, bytes_: float) -> float:
    """Hold bytes on a device, or with offload in its machine's memory between phases; what then moves in while the task runs."""
    if tb.job[0].offload and not tb.dev[device].on_host:
        lg.memory[task, term, device] = 0.0
        lg.memory[task, MOVED, device] += bytes_
        return bytes_
    lg.memory[task, term, device] = bytes_
    return 0.0


@inner
def model_footprint(tb: Tables, fp: Flat, lg: Ledger, task: int) -> None:
    """Memory of a training or inference task on its ranks."""
    dp, pp, tp = fp.row[task].dp, fp.row[task].pp, fp.row[task].tp
    own, sharing = owns_weights(tb, fp, task), replicas_sharing(tb, dp)
    for j in range(pp):
        layers, last = fp.split[task, j], j == pp - 1
        params = held_params(tb, task, layers, j == 0, last) / tp
        in_flight = min(pp - j, fp.row[task].micro_batches)
        for i in range(dp):
            needs = working_bytes(tb, task, layers, last, in_flight, tp, fp.micro[task, i])
            for r in range((i * pp + j) * tp, (i * pp + j + 1) * tp):
                device, moved = fp.ranks[task, r], 0.0
                if own:
                    moved += keep(tb, lg, task, WEIGHTS, device, params * tb.job[0].element_bytes / sharing)
                elif tb.job[0].offload and not tb.dev[device].on_host:
                    moved += params * tb.job[0].element_bytes / sharing
                if tb.task[task].training:
                    moved += keep(tb, lg, task, GRADIENTS, device, params * tb.job[0].gradient_bytes / sharing)
                    moved += keep(tb, lg, task, STATE, device, params * optimizer_bytes(tb, dp))
                lg.memory[task, WORKING, device] = needs + moved
