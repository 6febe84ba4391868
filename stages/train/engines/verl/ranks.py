"""From the plan's order of ranks to Megatron's, and from a batch to the shares of its replicas."""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.plan import Plan, Strategy


def megatron_order(strategy: Strategy) -> list[str]:
    """Device ids in Megatron's rank order.

    The plan counts shard fastest, then stage, then replica; Megatron-Core counts shard fastest, then replica, then stage
    (its default ``tp-cp-ep-dp-pp``).
    """
    return [strategy.rank(i, j, k) for j in range(strategy.pp) for i in range(strategy.dp) for k in range(strategy.tp)]


def replica_of(strategy: Strategy, megatron_rank: int) -> int:
    """Data-parallel replica a Megatron rank belongs to."""
    return megatron_rank // strategy.tp % strategy.dp


def seats(plan: Plan) -> list[int]:
    """Megatron rank of the actor → seat in the rollout that shares its devices: replica × shards + shard."""
    rollout = plan.tasks["rollout"].ranks
    return [rollout.index(device) for device in megatron_order(plan.tasks["actor_training"])]


def deal(lengths: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
    """Give each replica its count of sequences so that tokens follow the counts: longest first, to whoever lags most.

    Args:
        lengths: tokens of each sequence, [B].
        counts: sequences of each replica, [dp]; sums to B.

    Returns:
        Indices of each replica's sequences; every index once.
    """
    if sum(counts) != len(lengths):
        raise ValueError(f"{len(lengths)} sequences cannot be dealt as {list(counts)}")
    held = [0] * len(counts)
    hands: list[list[int]] = [[] for _ in counts]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        open_hands = [r for r in range(len(counts)) if len(hands[r]) < counts[r]]
        chosen = min(open_hands, key=lambda r: (held[r] + lengths[index]) / counts[r])
        hands[chosen].append(index)
        held[chosen] += lengths[index]
    return hands


def pieces(strategy: Strategy, *, mini_batches: int = 1) -> int:
    """Micro-batches every replica makes of its part of a mini-batch: as many as the largest share needs."""
    return -(-max(strategy.local_batch_sequences) // (mini_batches * strategy.micro_batch_sequences))


def micro_sizes(count: int, largest: int) -> list[int]:
    """Sizes of the micro-batches of ``count`` sequences, none above ``largest``, as even as can be."""
    pieces = -(-count // largest)
    return [count // pieces + (i < count % pieces) for i in range(pieces)]
