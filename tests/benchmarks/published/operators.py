"""Single operators as runs: an all-reduce is what the forward pass of one layer on n shards waits for; decode attention is what a decode
step of one layer takes more at a context than at none.
"""

from __future__ import annotations

import re

from artifacts.job import Lengths
from artifacts.model_spec import ModelSpec
from tests.benchmarks.published.rows import Row

ALL_REDUCES_OF_A_LAYER = 2
WIDTH = 4096
NO_CONTEXT = 1
HEADS = re.compile(r"(\d+) heads / (\d+) kv / d(\d+)")


def is_all_reduce(row: Row) -> bool:
    return row.algorithm.startswith("all_reduce")


def operator_model(row: Row) -> ModelSpec:
    """One layer with the heads that the row names."""
    found = HEADS.search(row.model)
    heads, kv, size = (int(n) for n in found.groups()) if found else (32, 32, 128)
    return ModelSpec(name="operator", layers=1, hidden=WIDTH, heads=heads, kv_heads=kv, head_dim=size, intermediate=WIDTH, vocab=WIDTH)


def operator_lengths(row: Row) -> tuple[Lengths, Lengths]:
    """Prompt and response: as many tokens as fill the message, or the context and one new token."""
    tokens = int(row.phase.rpartition(" ")[2]) // WIDTH - 1 if is_all_reduce(row) else row.prompt_len or 1
    return Lengths(mean=tokens, max=tokens), Lengths(mean=1, max=1)
