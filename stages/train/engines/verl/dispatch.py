"""How a batch is cut for the replicas of a task: by the plan's shares instead of verl's equal chunks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from verl.single_controller.base.decorator import collect_lazy_compute_data_proto, dispatch_nd_compute
from verl.utils.transferqueue_utils import kv_batch_meta2batch_meta

SHARES = "hetrl_shares"
"""Attribute of a worker group: mesh name → sequences of each replica. Set by the trainer."""

TOTAL, PIECES = "hetrl_total", "hetrl_pieces"
"""What a batch tells its workers: its sequences over all replicas, and the micro-batches each of them makes of its (mini-)batch."""


def _cut(batch: Any, counts: Sequence[int]) -> list[Any]:
    if sum(counts) != len(batch):
        raise ValueError(f"a batch of {len(batch)} sequences cannot be cut as {list(counts)}")
    meta, parts, start = kv_batch_meta2batch_meta(batch), [], 0
    for count in counts:
        parts.append(meta.select_samples(list(range(start, start + count))))
        start += count
    return parts


def _dispatch(mesh: str, worker_group: Any, *args: Any, **kwargs: Any) -> Any:
    if mesh not in worker_group._dispatch_info:
        worker_group._dispatch_info[mesh] = worker_group._query_dispatch_info(mesh)
    replica_of_rank = worker_group._dispatch_info[mesh]
    counts = getattr(worker_group, SHARES)[mesh]
    if len(counts) != max(replica_of_rank) + 1:
        raise ValueError(f"{len(counts)} shares for {max(replica_of_rank) + 1} replicas of {mesh}")
    return dispatch_nd_compute(replica_of_rank, len(counts), worker_group, *[_cut(a, counts) for a in args],
                               **{k: _cut(v, counts) for k, v in kwargs.items()})


def by_shares(mesh: str) -> dict[str, Any]:
    """A ``dispatch_mode`` for verl's ``register``."""
    return {"dispatch_fn": partial(_dispatch, mesh), "collect_fn": partial(collect_lazy_compute_data_proto, mesh)}
