"""Continuous batching on one rollout replica, step by step as vLLM schedules: who waits, who runs, who is put back.

A step computes the running sequences' next tokens and, within the engine's budget of tokens, prompts of those admitted; a sequence is
admitted when its prompt fits in the KV cache, and when the cache is full the one admitted last is put back and computed again later.
Steps between two such events differ only in the length of the contexts: they are one run, whose time is summed in closed form.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from artifacts.catalog.engines import DecodeHost
from artifacts.model_spec import ModelSpec


@dataclass(frozen=True)
class Server:
    """One replica: ``flops_per_s`` by tokens in a step, ``best_flops_per_s`` at any size, KV cache in tokens, most sequences at once, most
    tokens of a step (0: no bound), and what the host does at every step: beside the device, or first where the device is its own host.
    """

    model: ModelSpec
    element_bytes: int
    tp: int
    read_bytes_per_s: float
    flops_per_s: Callable[[float], float]
    best_flops_per_s: float
    fused: bool
    host: DecodeHost
    own_host: bool
    kv_tokens: int
    most_sequences: int
    most_tokens: int


@dataclass(frozen=True)
class Run:
    """Equal steps: how many, seconds of computing and reading, tokens that go through each layer, whether prompts are among them."""

    steps: int
    busy_s: float
    tokens: int
    prefill: bool


@dataclass
class _Sequence:
    prompt: int
    response: int
    made: int = 0
    """Tokens of the response so far, kept when the sequence is put back."""
    filled: int = 0
    """Tokens of prompt (and of what was made before it was put back) in the cache."""
    ends_at: int = 0

    @property
    def to_fill(self) -> int:
        return self.prompt + self.made - self.filled


@dataclass
class _House:
    """``context``: tokens of the running in the cache; ``held``: those and half-filled prompts."""

    server: Server
    waiting: deque[_Sequence]
    running: dict[int, _Sequence] = field(default_factory=dict)
    ends: list[tuple[int, int]] = field(default_factory=list)
    step: int = 0
    context: int = 0
    held: int = 0
    arrivals: int = 0


def generate(server: Server, prompts: Sequence[int], responses: Sequence[int]) -> list[Run]:
    """Runs until all responses have ended. The cache must hold the longest sequence alone (callers refuse a plan where it does not)."""
    house = _House(server, deque(_Sequence(int(p), int(r)) for p, r in zip(prompts, responses, strict=True)))
    runs = []
    while house.waiting or house.running:
        width = len(house.running)
        filled, squares = _admit(house)
        steps = 1 if filled else _steps_alike(house)
        if steps == 0:
            _put_back(house)
            continue
        heads = len(house.running)
        busy = _seconds(server, steps, width=width, context=house.context, filled=filled, squares=squares, heads=heads)
        runs.append(Run(steps=steps, busy_s=busy, tokens=steps * width + filled, prefill=filled > 0))
        _advance(house, steps)
    return runs


def generate_static(server: Server, prompts: Sequence[int], responses: Sequence[int]) -> list[Run]:
    """The same without continuous batching: a batch is prefilled at once and runs at full width until its longest response ends."""
    longest = max(int(p) + int(r) for p, r in zip(prompts, responses, strict=True))
    most = max(1, min(server.most_sequences, server.kv_tokens // longest))
    runs = []
    for at in range(0, len(prompts), most):
        batch, steps = [int(p) for p in prompts[at : at + most]], int(max(responses[at : at + most]))
        width, tokens = len(batch), sum(batch)
        fill = _seconds(server, 1, width=0, context=0, filled=tokens, squares=float(sum(p * p for p in batch)), heads=width)
        runs.append(Run(steps=1, busy_s=fill, tokens=tokens, prefill=True))
        busy = _seconds(server, steps, width=width, context=tokens, filled=0, squares=0.0, heads=width)
        runs.append(Run(steps=steps, busy_s=busy, tokens=steps * width, prefill=False))
    return runs


def _admit(house: _House) -> tuple[int, float]:
    """Fill prompts into this step: (tokens, Σ of squares they add to attention)."""
    server, filled, squares = house.server, 0, 0.0
    budget = server.most_tokens - len(house.running) if server.most_tokens else None
    while house.waiting and len(house.running) < server.most_sequences and (budget is None or budget > 0):
        sequence = house.waiting[0]
        # Everyone who runs writes one token in this step.
        if sequence.to_fill > server.kv_tokens - house.held - len(house.running) - 1:
            break
        take = sequence.to_fill if budget is None else min(sequence.to_fill, budget)
        squares += float((sequence.filled + take) ** 2 - sequence.filled**2)
        sequence.filled += take
        filled, house.held = filled + take, house.held + take
        budget = None if budget is None else budget - take
        if sequence.to_fill == 0:
            house.waiting.popleft()
            house.arrivals += 1
            sequence.ends_at = house.step + sequence.response - sequence.made
            house.running[house.arrivals] = sequence
            heapq.heappush(house.ends, (sequence.ends_at, house.arrivals))
    return filled, squares


def _steps_alike(house: _House) -> int:
    """Steps until the next response ends or the cache is full; 0: it is full now."""
    if not house.running:
        return 0
    return min(house.ends[0][0] - house.step, (house.server.kv_tokens - house.held) // len(house.running))


def _put_back(house: _House) -> None:
    """Room in the cache: a half-filled prompt gives its place back, else the sequence admitted last; it must be filled in again."""
    if house.waiting and house.waiting[0].filled:
        half = house.waiting[0]
        house.held -= half.filled
        half.filled = 0
        return
    number, sequence = house.running.popitem()
    house.ends = [e for e in house.ends if e[1] != number]
    heapq.heapify(house.ends)
    house.held -= sequence.filled
    house.context -= sequence.filled
    sequence.made, sequence.filled = sequence.response - (sequence.ends_at - house.step), 0
    house.waiting.appendleft(sequence)


def _advance(house: _House, steps: int) -> None:
    house.step += steps
    house.held += steps * len(house.running)
    for sequence in house.running.values():
        sequence.filled += steps
    while house.ends and house.ends[0][0] <= house.step:
        _, number = heapq.heappop(house.ends)
        house.held -= house.running.pop(number).filled
    house.context = sum(s.filled for s in house.running.values())


def _seconds(server: Server, steps: int, *, width: int, context: int, filled: int, squares: float, heads: int) -> float:
    """``steps`` steps of ``width`` sequences that see ``context`` tokens together, with ``filled`` tokens of prompts beside them.

    A step reads the weights or multiplies by them, whichever takes longer; then reads the cache or computes attention, which both grow by
    one token a sequence and step, so their larger is two straight lines. Prompts move activations beside. The host adds its own time.
    """
    model = server.model
    rate, memory = server.tp * server.flops_per_s(float(width + filled)), server.tp * server.read_bytes_per_s
    best = server.tp * server.best_flops_per_s
    weights = (model.layers * model.layer_params() + model.embedding_params()) * server.element_bytes
    cache = model.layers * model.kv_bytes_per_token_layer(server.element_bytes)
    matmul = model.layers * model.layer_matmul_flops(width + filled) + model.head_flops(heads)
    prompts = model.layers * model.layer_attention_flops(squares**0.5)
    whole, divided = model.pointwise_elements(fused=server.fused)
    moved = filled * model.layers * (whole + divided / server.tp) * server.element_bytes / server.read_bytes_per_s
    attention = _sum_of_larger(
        context * cache / memory,
        width * cache / memory,
        model.layers * model.decode_attention_flops(context) / best,
        model.layers * model.decode_attention_flops(width) / best,
        steps,
    )
    busy = steps * (max(weights / memory, (matmul + prompts) / rate) + moved) + attention
    launch = steps * model.layers * server.host.layer_s
    return (busy + launch if server.own_host else max(busy, launch)) + steps * (server.host.gap_s + server.host.sequence_s * width)


def _sum_of_larger(a: float, a_more: float, b: float, b_more: float, steps: int) -> float:
    """Σ over i < steps of max(a + i·a_more, b + i·b_more)."""
    crossing = (b - a) / (a_more - b_more) if a_more != b_more else -1.0
    first = int(min(steps, crossing + 1)) if crossing > 0 else 0

    def along(start: int, stop: int) -> float:
        n, middle = stop - start, (start + stop - 1) / 2
        return n * max(a + middle * a_more, b + middle * b_more)

    return along(0, first) + along(first, steps)
