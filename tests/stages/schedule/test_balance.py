"""Load balancing against brute force."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.balance import apportion, deal_micro_batches, divisors, split_layers


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


@given(st.integers(1, 14), costs, st.integers(1, 14) | st.none())
def test_shares_are_the_best_there_are(total: int, per_sequence: list[float], most: int | None) -> None:
    deals = [d for d in product(range(1, (most or total) + 1), repeat=len(per_sequence)) if sum(d) == total]
    found = apportion(total, tuple(per_sequence), most)
    if not deals:
        assert found is None
        return
    assert found is not None and found in deals

    def worst(deal: tuple[int, ...]) -> float:
        return max(n * c for n, c in zip(deal, per_sequence, strict=True))

    assert worst(found) == pytest.approx(min(map(worst, deals)))


@given(st.integers(1, 64), st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0]), min_size=1, max_size=6), st.integers(1, 8), st.integers(1, 4))
def test_micro_batches_are_equal_in_number_and_sum_to_the_batch(sequences: int, per_sequence: list[float], most: int, stages: int) -> None:
    found = deal_micro_batches(sequences, tuple(per_sequence), most=most, stages=stages)
    if found is None:
        assert not any(len(per_sequence) <= sequences // c <= len(per_sequence) * most for c in divisors(sequences))
        return
    count, sizes = found
    assert count * sum(sizes) == sequences
    assert all(1 <= s <= most for s in sizes)


def test_a_replica_three_times_as_fast_takes_three_times_as_much() -> None:
    """The batch of 32 as eight micro-batches of 3 and 1."""
    assert deal_micro_batches(32, (1.0, 3.0), most=4, stages=1) == (8, (3, 1))
    assert deal_micro_batches(32, (1.0, 1.0), most=4, stages=1) == (4, (4, 4))
    assert deal_micro_batches(32, (1.0, 3.0), most=4, stages=1, even=True) == (4, (4, 4))
