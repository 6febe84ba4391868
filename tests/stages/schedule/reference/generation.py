"""How long one rollout replica takes: prefill, decoding at full house, and the tail in which the last responses end.

Decoding reads the weights and the KV cache of every sequence in flight at each step, or computes, whichever takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from artifacts.model_spec import ModelSpec
from tests.stages.schedule.reference.lengths import expected_longest, mean_age, shape, survival

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
TAIL_POINTS = tuple(zip(((_NODES + 1) / 2).tolist(), (_WEIGHTS / 2).tolist(), strict=True))
"""Gauss–Legendre points over the response, as fractions of its maximum, and their weights."""


@dataclass(frozen=True)
class Replica:
    """One generation replica of ``tp`` shards: its slowest shard's rates and its ring."""

    tp: int
    hbm_bytes_per_s: float
    latency_s: float
    """Slowest ring step's latency; 0 with one shard."""
    inverse_bandwidth: float
    flops_per_s: Callable[[int], float]
    """Achieved rate by the number of tokens in a pass."""


@dataclass(frozen=True)
class Generation:
    """Time of one replica by term, and steps it ran."""

    prefill_s: float
    decode_s: float
    tp_s: float
    tail_s: float
    steps: float

    @property
    def total_s(self) -> float:
        return self.prefill_s + self.decode_s + self.tp_s + self.tail_s


def generation_time(
    *,
    model: ModelSpec,
    element_bytes: int,
    sequences: int,
    in_flight: int,
    prompt_tokens: float,
    response_mean: float,
    response_max: int,
    replica: Replica,
    continuous: bool,
    prefill_tokens: int,
) -> Generation:
    """Seconds a replica needs for ``sequences`` responses with at most ``in_flight`` at once.

    Continuous batching keeps the house full for (n − c)·mean/c steps, then the last c drain: at token s of
    the response c·S(s) of them are expected to run, and a step takes place with the probability that any does, 1 − (1 − S(s))^c.
    A static batch runs at full width until its longest response ends.
    """
    c = min(in_flight, sequences)
    decoding = _decoding(model, element_bytes, replica)
    step = decoding.step
    longest = expected_longest(mean=response_mean, maximum=float(response_max), count=c)
    if not continuous:
        batches = -(-sequences // c)
        work, tp = step(c, prompt_tokens + longest / 2)
        decode, tp_total, tail, steps = batches * longest * work, batches * longest * tp, 0.0, batches * longest
    else:
        k = shape(mean=response_mean, maximum=float(response_max))
        full_steps = (sequences - c) * response_mean / c
        work, tp = step(c, prompt_tokens + mean_age(mean=response_mean, maximum=float(response_max)))
        drain_work = drain_tp = 0.0
        for fraction, weight in TAIL_POINTS:
            alive = survival(fraction, k=k)
            any_alive = 1.0 - (1.0 - alive) ** c
            if any_alive <= 0.0:
                continue
            w, t = step(c * alive / any_alive, prompt_tokens + fraction * response_max)
            drain_work += w * any_alive * weight * response_max
            drain_tp += t * any_alive * weight * response_max
        tail = max(0.0, drain_work - response_mean * work)
        decode = full_steps * work + drain_work - tail
        tp_total, steps = full_steps * tp + drain_tp, full_steps + longest
    return Generation(
        prefill_s=_prefill(model, decoding, sequences, c, prompt_tokens, prefill_tokens),
        decode_s=decode,
        tp_s=tp_total,
        tail_s=tail,
        steps=steps,
    )


@dataclass(frozen=True)
class _Decoding:
    """What one step of a replica reads, computes and exchanges, ready to be asked at any width and context."""

    replica: Replica
    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_sequence: float
    flops_per_context_token: float
    all_reduces: int
    activation_bytes: float

    def step(self, width: float, context: float) -> tuple[float, float]:
        """(work, tensor-parallel communication) of one decode step with ``width`` sequences at ``context`` tokens."""
        replica = self.replica
        read = (self.weight_bytes + width * context * self.kv_bytes_per_token) / replica.tp / replica.hbm_bytes_per_s
        flops = width * (self.flops_per_sequence + context * self.flops_per_context_token) / replica.tp
        return max(read, flops / replica.flops_per_s(max(1, round(width)))), self.communication(width)

    def communication(self, tokens: float) -> float:
        """Two all-reduces a layer on tokens·h activations."""
        replica = self.replica
        if replica.tp == 1:
            return 0.0
        once = 2 * (replica.tp - 1) * (replica.latency_s + tokens * self.activation_bytes * replica.inverse_bandwidth / replica.tp)
        return self.all_reduces * once


def _decoding(model: ModelSpec, element_bytes: int, replica: Replica) -> _Decoding:
    return _Decoding(
        replica=replica,
        weight_bytes=float((model.layers * model.layer_params() + model.embedding_params()) * element_bytes),
        kv_bytes_per_token=float(model.layers * model.kv_bytes_per_token_layer(element_bytes)),
        flops_per_sequence=model.layers * model.layer_matmul_flops(1) + model.head_flops(1),
        flops_per_context_token=4.0 * model.layers * model.heads * model.head_dim,
        all_reduces=2 * model.layers,
        activation_bytes=float(model.hidden * element_bytes),
    )


def _prefill(model: ModelSpec, decoding: _Decoding, sequences: int, in_flight: int, prompt: float, chunk: int) -> float:
    replica, tokens = decoding.replica, sequences * prompt
    at_once = min(tokens, float(chunk)) if chunk else in_flight * prompt
    attention = sequences * model.layer_attention_flops(prompt)
    flops = model.layers * (model.layer_matmul_flops(tokens) + attention) + model.head_flops(sequences)
    passes = tokens / at_once
    read = passes * decoding.weight_bytes / replica.tp / replica.hbm_bytes_per_s
    work = max(flops / replica.tp / replica.flops_per_s(max(1, round(at_once))), read)
    return work + passes * decoding.communication(at_once)
