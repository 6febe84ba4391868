"""What the kernel reads and writes: a few arrays of records, so that compiled functions hand each other little.

Symbols: D devices, M machines, C device classes, T tasks, R = most ranks of a task (= D), Q quadrature nodes, H model widths, P tensor-
parallel
degrees, K points of a rate curve. SI units. Device indices are the fleet's, which lie sorted by region, zone and machine; a task's index is
its
place in ``Problem.tasks``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Records = NDArray[Any]

COMPUTE, HBM, TP, PP, BUBBLE, DP, OPTIMIZER, PREFILL, DECODE, TAIL, OFFLOAD, ACTIVATIONS, HOST = range(13)
TERMS = ("compute", "hbm", "tp", "pp", "bubble", "dp", "optimizer", "prefill", "decode", "tail", "offload", "activations", "host")
WEIGHTS, GRADIENTS, STATE, MODEL_PROCESS, ROLLOUT_PROCESS, MOVED, WORKING = range(7)
HELD = ("weights", "gradients", "optimizer", "process", "process")
ROLLOUT, INFERENCE, TRAINING, OVERFLOW = range(4)
NONE, SELECTIVE, FULL = range(3)
SLOWER = 1.0 + 1e-12
"""Of two that take equally long but for rounding, the first is the slower."""

_F, _I = np.float64, np.int64


def _record(fields: list[tuple[str, type]]) -> np.dtype[Any]:
    """Fields of 8 bytes, aligned."""
    return np.dtype(fields, align=True)


DEVICE = _record(
    [
        ("machine", _I),
        ("device_class", _I),
        ("hbm", _F),  # achieved bytes/s of device memory
        ("slow", _F),  # the host's times on it, times as long as stated
        ("best", _F),  # FLOP/s at the best point of its class's curve
        ("usable", _F),  # plannable bytes
        ("capacity", _F),
        ("host_rate", _F),  # bytes/s between device and host, one direction
        ("on_host", _I),  # 1 where the device's memory is the machine's own
    ]
)
LINK = _record([("latency", _F), ("inverse", _F)])  # one way, s and s/byte; the diagonal is between devices inside a machine
MACHINE = _record([("memory", _F), ("sends", _F), ("receives", _F)])  # bytes; s/byte of its fastest link out and in: its port
POINT = _record([("tokens", _F), ("rate", _F)])  # natural logarithms of tokens and FLOP/s, ascending
NODE = _record([("tokens", _F), ("weight", _F), ("survival", _F)])  # a response length, its weight in tokens, share of longer responses
TASK = _record(
    [
        ("phase", _I),  # ROLLOUT, INFERENCE or TRAINING
        ("training", _I),
        ("value_head", _I),
        ("width", _I),  # H index of the model's hidden size
        ("follows", _I),  # the task whose strategy it takes where they share a group, or −1
        ("shares_weights_with", _I),  # the training task of the same role, or −1
        ("layers", _I),
        ("heads", _I),
        ("vocab", _I),
        ("hidden", _F),
        ("layer_params", _F),
        ("first_params", _F),  # parameters a first stage holds beside its layers
        ("last_params", _F),
        ("both_params", _F),  # correction where one stage is first and last: a tied head is counted once
        ("layer_flops", _F),  # forward FLOPs of a token in a layer's matrices
        ("attention_flops", _F),  # causal forward attention is this times S², a sequence and layer
        ("head_flops", _F),  # of a token through the output head
        ("wide", _F),  # elements a token and layer that tensor parallelism divides: projections and MLP
        ("whole_moved", _F),  # elements a token and layer that pointwise operations move on every shard
        ("divided_moved", _F),  # the same, divided over the shards, attention's scores with them where they are stored
        ("kv_bytes", _F),  # KV cache of a token in a layer
    ]
)
JOB = _record(
    [
        ("rollout", _I),  # task index
        ("actor", _I),  # task index of the actor's training
        ("asynchronous", _I),
        ("sequences", _I),
        ("mini_batches", _I),
        ("steps", _I),  # optimizer steps an iteration
        ("recompute", _I),
        ("offload", _I),
        ("optimizer_sharded", _I),
        ("uneven_layers", _I),
        ("uneven_batches", _I),
        ("flash", _I),
        ("sequence_parallel", _I),
        ("fully_sharded", _I),
        ("patchy", _I),  # 1 where two machines have no usable link
        ("divided_hops", _I),
        ("hop_messages", _F),  # one way, of a micro-batch from stage to stage
        ("continuous", _I),
        ("most_in_flight", _I),
        ("element_bytes", _F),
        ("gradient_bytes", _F),
        ("tokens", _F),  # mean tokens of a sequence as computed in training and inference
        ("prompt_mean", _F),
        ("sequence_max", _F),
        ("response_mean", _F),
        ("response_age", _F),  # mean tokens behind a response in flight while the engine is full
        ("prefill_tokens", _F),
        ("process_bytes", _F),
        ("generation_bytes", _F),
        ("reserve", _F),
        ("overhead", _F),
        ("launch", _F),  # host seconds to launch one layer's operations in one pass
        ("launch_token", _F),  # … more for each token of the micro-batch
        ("beside", _F),  # 1: the host launches while the device works; 0: the device is its own host
        ("step_gap", _F),  # host seconds between two decode steps
        ("step_each", _F),  # … more for each sequence
        ("step_layer", _F),  # host seconds to launch one layer's operations in a decode step
        ("export", _F),  # host seconds of a weight update's tensors
        ("gather", _F),  # … more where the actor has pipeline stages
        ("gather_trips", _F),  # latencies between neighbouring stages that it then waits for
    ]
)
ROW = _record([("group", _I), ("dp", _I), ("pp", _I), ("tp", _I), ("micro_batches", _I)])  # micro-batches of each mini-batch
SLOT = _record(
    [
        ("peak", _F),  # by device: bytes
        ("kv", _F),  # by rollout replica: KV cache a shard is given
        ("in_flight", _I),  # by rollout replica: sequences at once
        ("priced", _I),  # by rollout replica: sequences at once when it was last priced
        ("shortfall", _F),  # by rollout replica: bytes it lacks for one sequence of maximum length
        ("stage", _F),  # scratch: hops by replica and stage
        ("ring", _I),  # scratch
        ("mark", _I),  # scratch, by device
        ("members", _I),  # scratch
    ]
)
PAIR = _record([("flows", _F), ("stamp", _I)])  # scratch: transfers that share a pair of machines
PACE = _record([("rate", _F), ("sequences", _I)])  # scratch: FLOP/s of a class at a micro-batch
TOTAL = _record([("iteration", _F), ("update", _F), ("overflow", _F), ("rollout", _F), ("inference", _F), ("training", _F), ("clock", _I)])


class Tables(NamedTuple):
    """A problem. Built once by :func:`stages.schedule.cost.tables.build_tables`."""

    dev: Records
    """[D] of DEVICE"""
    net: Records
    """[M, M] of LINK"""
    box: Records
    """[M] of MACHINE"""
    points: Ints
    """[H, P, C] points of the rate curve"""
    curve: Records
    """[H, P, C, K] of POINT"""
    factor: Floats
    """[T + 2, C] calibration; row T the old log-probabilities, row T + 1 the weight update"""
    task: Records
    """[T] of TASK"""
    node: Records
    """[Q] of NODE"""
    job: Records
    """[1] of JOB"""


class Flat(NamedTuple):
    """A plan. Row t belongs to task t."""

    row: Records
    """[T] of ROW"""
    ranks: Ints
    """[T, R] device of rank (i·pp + j)·tp + k"""
    split: Ints
    """[T, R] layers by stage"""
    local: Ints
    """[T, R] sequences of the batch by replica"""
    micro: Ints
    """[T, R] sequences of one micro-batch by replica"""


class Ledger(NamedTuple):
    """What the kernel writes, and its scratch memory. What belongs to devices outside the groups priced keeps its last value."""

    time: Floats
    """[T + 1] seconds; row T the old log-probabilities"""
    terms: Floats
    """[T + 1, 13] seconds by term, in the order of :data:`TERMS`"""
    memory: Floats
    """[T, 7, D] bytes: held all the time in the order of :data:`HELD`; moved to the machine's memory between phases; needed while the task
    runs
    """
    slot: Records
    """[D] of SLOT"""
    groups: Floats
    """[T, 4] by group: seconds of rollout, inference, training; the worst device's lack of memory over its capacity"""
    total: Records
    """[1] of TOTAL"""
    pair: Records
    """[M, M] of PAIR"""
    pace: Records
    """[C] of PACE"""
    machines: Floats
    """[6, M] scratch"""
    seen: Floats
    """[64, 4] scratch: distinct rollout replicas of a plan and their times"""
    floats: Floats
    """[4, R] scratch of the layout: bounds, per-layer and fixed times, costs"""
    whole: Ints
    """[5, R] scratch of the layout: bounds, shares, units, devices left over, a unit"""
