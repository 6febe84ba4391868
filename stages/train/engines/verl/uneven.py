"""Micro-batches of a share that no size divides."""

from __future__ import annotations

import functools
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from stages.train.engines.verl.ranks import micro_sizes


def apply() -> None:
    """verl cuts a local batch into equal micro-batches or refuses; a replica's share need not be a multiple of the plan's size.

    A worker that was not told the plan's size, and would go by tokens, raises ``ValueError``.
    """
    import verl.workers.engine.megatron.transformer_impl as megatron_engine

    engine: Any = megatron_engine
    equal = engine.prepare_micro_batches

    @functools.wraps(equal)
    def cut(data: TensorDict, **kwargs: Any) -> Any:
        if tu.get_non_tensor_data(data=data, key="use_dynamic_bsz", default=True):
            raise ValueError(f"verl would cut {len(data)} sequences into micro-batches by their tokens, not as the plan says")
        largest = data["micro_batch_size_per_gpu"]
        if len(data) % largest == 0:
            return equal(data, **kwargs)
        pieces, start = [], 0
        for size in micro_sizes(len(data), largest):
            pieces.append(tu.index_select_tensor_dict(data, torch.arange(start, start + size)))
            start += size
        return pieces, None

    engine.prepare_micro_batches = cut
