"""What one iteration works on: sequences with sampled lengths, dealt to replicas and micro-batches as the plan says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.job import Job, Lengths
from artifacts.plan import Strategy
from stages.train.engines.verl.ranks import deal, pieces

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch:
    """Tokens of every sequence of one global batch, ``[N]`` each: prompt and response in the order of rollout; as training and inference
    compute it, in the order in which it is dealt to their replicas."""

    prompt: Ints
    response: Ints
    computed: Ints

    @property
    def tokens(self) -> int:
        return int(self.prompt.sum() + self.response.sum())


def sample(job: Job, number: int, *, shares: Sequence[int], padded: bool) -> Batch:
    """The batch of iteration ``number``, the same for the same seed. Responses to one prompt share its length.

    Args:
        shares: sequences of each replica of the actor's training; the engine deals the batch so that tokens follow them.
        padded: the engine computes every sequence, and prefills every prompt, at its maximum length.
    """
    rng = np.random.default_rng((job.seed, number))
    prompt = np.repeat(_lengths(rng, job.prompt_tokens, job.batch.prompts), job.batch.responses_per_prompt)
    response = _lengths(rng, job.response_tokens, job.batch.sequences)
    if padded:
        prompt = np.full_like(prompt, job.prompt_tokens.max)
        return Batch(prompt=prompt, response=response, computed=np.full_like(prompt, job.sequence_tokens_max))
    tokens = prompt + response
    order = [index for hand in deal(tokens.tolist(), shares) for index in sorted(hand)]
    return Batch(prompt=prompt, response=response, computed=tokens[order])


def _lengths(rng: np.random.Generator, lengths: Lengths, count: int) -> Ints:
    """Tokens of ``count`` texts: between the measured quantiles evenly, where the job has them. Else P(length > u·max) = (1 − u)^k with
    k = max/mean − 1: the mean is right, nothing passes the maximum; k = 0: all at the maximum."""
    drawn = rng.random(count)
    if lengths.quantiles:
        below, tokens = zip(*sorted(lengths.quantiles.items()), strict=True)
        exact = np.interp(drawn, [0.0, *below, 1.0], [0.0, *tokens, lengths.max])
    else:
        k = lengths.max / lengths.mean - 1.0
        exact = lengths.max * (1.0 - drawn ** (1.0 / k)) if k > 1e-9 else np.full(count, float(lengths.max))
    return np.clip(np.round(exact), 1, lengths.max).astype(np.int64)


@dataclass(frozen=True)
class MicroBatch:
    """Sequences of one pass: how many tokens, and Σ tokens² for attention."""

    tokens: int
    squares: int


def cut(tokens: Ints, strategy: Strategy, *, mini_batches: int) -> list[list[list[MicroBatch]]]:
    """``[mini-batch][replica][micro-batch]``: each replica takes its share of consecutive sequences, cuts it into mini-batches and these
    into as many micro-batches as the busiest replica needs (an engine runs the same number on every replica)."""
    count = pieces(strategy, mini_batches=mini_batches)
    ends = np.cumsum(strategy.local_batch_sequences)[:-1]
    shares = [np.array_split(mine, mini_batches) for mine in np.split(tokens, ends)]
    return [
        [[MicroBatch(int(p.sum()), int((p * p).sum())) for p in np.array_split(mine[m], count)] for mine in shares]
        for m in range(mini_batches)
    ]
