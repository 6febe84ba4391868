"""The kernel's load balancing against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.cost.kernel import balance

Whole = np.int64


def split_layers(layers: int, *, per_layer: Sequence[float], fixed: Sequence[float], most: Sequence[int] = ()) -> tuple[int, ...] | None:
    split, bounds = np.zeros(len(per_layer), Whole), np.array(most or [layers] * len(per_layer), Whole)
    return tuple(split.tolist()) if balance.split_layers(layers, np.array(per_layer), np.array(fixed), bounds, split) else None


def apportion(total: int, costs: Sequence[float], most: int) -> tuple[int, ...] | None:
    shares = np.zeros(len(costs), Whole)
    return tuple(shares.tolist()) if balance.apportion(total, np.array(costs), most, shares) else None


def deal_micro_batches(
    sequences: int, costs: Sequence[float], *, most: int, stages: int, even: bool = False
) -> tuple[int, tuple[int, ...]] | None:
    sizes, scratch = np.zeros(len(costs), Whole), np.zeros(len(costs), Whole)
    count = balance.deal_micro_batches(sequences, np.array(costs), most, stages, even, sizes, scratch)
    return (count, tuple(sizes.tolist())) if count else None


def test_thirty_layers_on_four_equal_stages() -> None:
    """Case: Megatron once built 28 of 30 layers in silence."""
    split = split_layers(30, per_layer=[1.0] * 4, fixed=[0.0] * 4)
    assert split is not None and sorted(split) == [7, 7, 8, 8]


def test_stages_of_speed_two_two_one_one() -> None:
    assert split_layers(30, per_layer=[1.0, 1.0, 2.0, 2.0], fixed=[0.0] * 4) == (10, 10, 5, 5)


def test_a_head_on_the_last_stage_takes_layers_off_it() -> None:
    assert split_layers(12, per_layer=[1.0, 1.0], fixed=[0.0, 4.0]) == (8, 4)


def test_memory_bounds_a_stage() -> None:
    assert split_layers(12, per_layer=[1.0, 1.0, 1.0], fixed=[0.0] * 3, most=[2, 12, 12]) == (2, 5, 5)
    assert split_layers(12, per_layer=[1.0, 1.0], fixed=[0.0] * 2, most=[5, 6]) is None
    assert split_layers(1, per_layer=[1.0, 1.0], fixed=[0.0] * 2) is None


costs = st.lists(st.floats(0.1, 10), min_size=1, max_size=4)


@given(st.integers(1, 10), costs, st.data())
def test_the_layer_split_is_the_best_there_is(layers: int, per_layer: list[float], data: st.DataObject) -> None:
    stages = len(per_layer)
    fixed = data.draw(st.lists(st.floats(0, 10), min_size=stages, max_size=stages))
    most = data.draw(st.lists(st.integers(1, 10), min_size=stages, max_size=stages))
    splits = [s for s in product(*(range(1, m + 1) for m in most)) if sum(s) == layers]
    found = split_layers(layers, per_layer=per_layer, fixed=fixed, most=most)
    if not splits:
        assert found is None
        return
    assert found is not None and found in splits

    def worst(split: tuple[int, ...]) -> float:
        return max(f + p * n for f, p, n in zip(fixed, per_layer, split, strict=True))

    assert worst(found) == pytest.approx(min(map(worst, splits)))


@given(st.integers(1, 14), costs, st.integers(1, 14))
def test_shares_are_the_best_there_are(total: int, per_sequence: list[float], most: int) -> None:
    deals = [d for d in product(range(1, most + 1), repeat=len(per_sequence)) if sum(d) == total]
    found = apportion(total, per_sequence, most)
    if not deals:
        assert found is None
        return
    assert found is not None and found in deals

    def worst(deal: tuple[int, ...]) -> float:
        return max(n * c for n, c in zip(deal, per_sequence, strict=True))

    assert worst(found) == pytest.approx(min(map(worst, deals)))


@given(st.integers(1, 30), st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0]), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 4))
def test_micro_batches_are_the_best_there_are(sequences: int, per_sequence: list[float], most: int, stages: int) -> None:
    """Equal in number on all replicas, and of one size on each: (count + stages − 1)·max size·cost is least."""
    deals = [(count, sizes) for count in range(1, sequences + 1) if sequences % count == 0
             for sizes in product(range(1, most + 1), repeat=len(per_sequence)) if sum(sizes) == sequences // count]  # fmt: skip
    found = deal_micro_batches(sequences, per_sequence, most=most, stages=stages)
    if not deals:
        assert found is None
        return
    assert found in deals

    def worst(deal: tuple[int, tuple[int, ...]]) -> float:
        return (deal[0] + stages - 1) * max(n * c for n, c in zip(deal[1], per_sequence, strict=True))

    assert found is not None and worst(found) == pytest.approx(min(map(worst, deals)))


def test_a_replica_three_times_as_fast_takes_three_times_as_much() -> None:
    """The batch of 32 as eight micro-batches of 3 and 1."""
    assert deal_micro_batches(32, (1.0, 3.0), most=4, stages=1) == (8, (3, 1))
    assert deal_micro_batches(32, (1.0, 1.0), most=4, stages=1) == (4, (4, 4))
    assert deal_micro_batches(32, (1.0, 3.0), most=4, stages=1, even=True) == (4, (4, 4))
