"""The rollout task on its replicas: how many sequences each takes, how many fit in flight, how long the slowest needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.stages.schedule.reference.balance import apportion
from tests.stages.schedule.reference.generation import Generation, Replica, generation_time
from tests.stages.schedule.reference.memory import kv_bytes_per_sequence
from tests.stages.schedule.reference.network import ring_successors
from tests.stages.schedule.reference.tasks import TaskPrice
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BALANCING_ROUNDS = 2
Signature = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class RolloutPrice:
    """Layout (shares of the batch by replica), time by term, KV bytes each shard of a replica needs, ``[replicas]``.

    ``shortfall`` is bytes a replica lacks to hold even one sequence of maximum length.
    """

    layout: Layout
    price: TaskPrice
    kv_bytes: Floats
    shortfall: Floats


def price_rollout(problem: Problem, *, ranks: Ints, kv_budget: Floats, shares: tuple[int, ...] | None = None) -> RolloutPrice | None:
    """Price the slowest replica; ``shares`` are dealt in proportion to speed if None. None where replicas outnumber sequences."""
    replicas, _, tp = ranks.shape
    work, engine, model = problem.work, problem.engine, problem.task("rollout").model
    total = work.sequences
    per_sequence = kv_bytes_per_sequence(model, tokens=work.sequence_max, tp=tp, element_bytes=problem.element_bytes)
    mean_sequence = kv_bytes_per_sequence(model, tokens=work.prompt_mean + work.response_mean, tp=tp, element_bytes=problem.element_bytes)
    fits = np.floor(kv_budget / (mean_sequence if engine.rollout.continuous_batching else per_sequence))
    caps = _round_down(np.clip(fits, 1, engine.rollout.sequences_in_flight).astype(int))
    shortfall = np.maximum(0.0, per_sequence - kv_budget)

    factors = problem.factors("rollout")[ranks].max(axis=(1, 2))
    signatures = _signatures(problem, ranks[:, 0], caps, factors)
    known: dict[tuple[Signature, int], Generation] = {}

    def time_of(i: int, sequences: int) -> Generation:
        key = (signatures[i], sequences)
        if key not in known:
            known[key] = generation_time(
                model=model,
                element_bytes=problem.element_bytes,
                sequences=sequences,
                in_flight=int(caps[i]),
                prompt_tokens=work.prompt_mean,
                response_mean=work.response_mean,
                response_max=work.response_max,
                replica=_replica(problem, ranks[i, 0]),
                continuous=engine.rollout.continuous_batching,
                prefill_tokens=engine.rollout.prefill_tokens,
            )
        return known[key]

    if shares is None:
        shares = apportion(total, (1.0,) * replicas)
        if shares is None:
            return None
        if len(set(signatures)) > 1 and engine.uneven_batches:
            shares = _balanced(total, shares, lambda i, n: float(factors[i]) * time_of(i, n).total_s)
    times = [float(factors[i]) * time_of(i, n).total_s for i, n in enumerate(shares)]
    slowest = int(np.argmax(times))
    generation, factor = time_of(slowest, shares[slowest]), float(factors[slowest])
    in_flight = tuple(min(int(c), n) for c, n in zip(caps, shares, strict=True))
    return RolloutPrice(
        layout=Layout(ranks=ranks, layers=(model.layers,), local=shares, micro=in_flight, micro_batches=1),
        price=TaskPrice(
            {
                "prefill": factor * generation.prefill_s,
                "decode": factor * generation.decode_s,
                "tp": factor * generation.tp_s,
                "tail": factor * generation.tail_s,
            }
        ),
        kv_bytes=np.minimum(np.array(in_flight) * per_sequence, np.maximum(kv_budget, per_sequence)),
        shortfall=shortfall,
    )


def _round_down(caps: Ints) -> Ints:
    """To four binary digits: replicas that differ by less than 6 % in room are one kind, and none is promised room it has not."""
    step = 2 ** np.maximum(0, np.floor(np.log2(caps)).astype(int) - 3)
    return caps // step * step  # type: ignore[no-any-return]


def _balanced(total: int, shares: tuple[int, ...], time_of: Callable[[int, int], float]) -> tuple[int, ...]:
    """Shares so that replicas end together: proportional to the rate each showed with its last share; the best round wins."""
    best, best_time = shares, max(time_of(i, n) for i, n in enumerate(shares))
    for _ in range(BALANCING_ROUNDS):
        costs = tuple(float(f"{time_of(i, n) / n:.4g}") for i, n in enumerate(shares))
        dealt = apportion(total, costs)
        if dealt is None or dealt == shares:
            break
        shares = dealt
        slowest = max(time_of(i, n) for i, n in enumerate(shares))
        if slowest < best_time:
            best, best_time = shares, slowest
    return best


def _signatures(problem: Problem, shards: Ints, caps: Ints, factors: Floats) -> list[Signature]:
    """What a replica's time depends on beside its share: equal signatures are priced once. ``shards`` is ``[replicas, tp]``."""
    fleet, following = problem.fleet, shards[:, list(ring_successors(shards.shape[1]))]
    classes = np.sort(fleet.device_class[shards], axis=1).tolist()
    latency = fleet.latency_s[shards, following].max(axis=1).tolist()
    inverse = fleet.inverse_bandwidth[shards, following].max(axis=1).tolist()
    return [(tuple(c), *rest) for c, *rest in zip(classes, latency, inverse, caps.tolist(), factors.tolist(), strict=True)]


def _replica(problem: Problem, shards: Ints) -> Replica:
    fleet, tp, hidden = problem.fleet, len(shards), problem.task("rollout").model.hidden
    following = shards[list(ring_successors(len(shards)))]

    def flops_per_s(tokens: int) -> float:
        return float(problem.rates(tokens=float(tokens), hidden=hidden, tp=tp)[shards].min())

    return Replica(
        tp=tp,
        hbm_bytes_per_s=float(fleet.hbm_bytes_per_s[shards].min()),
        latency_s=float(fleet.latency_s[shards, following].max()),
        inverse_bandwidth=float(fleet.inverse_bandwidth[shards, following].max()),
        flops_per_s=flops_per_s,
    )
