"""The efficiency curve, and what computing costs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.cost.compute import Curve, equivalent_width, head_forward_flops, layer_forward_flops, training_multiplier
from tests.stages.schedule.builders import small_model

CURVE = Curve.of({(16, 64): 1e9, (256, 64): 4e9, (16, 1024): 2e9, (256, 1024): 8e9}, flat=5e9)


def test_a_curve_without_points_is_flat() -> None:
    curve = Curve.of({}, flat=5e9)
    assert curve.rate(tokens=1, width=1) == curve.rate(tokens=1e6, width=1e5) == 5e9
    assert curve.covers(tokens=1, width=1)


def test_measured_points_come_back_exactly_and_between_them_logarithms_are_linear() -> None:
    # keys are (width, tokens): at width 16, 64 tokens give 1e9 and 1024 tokens 2e9; 256 tokens lie half-way in the logarithm: √2e9
    assert CURVE.rate(tokens=64, width=16) == pytest.approx(1e9)
    assert CURVE.rate(tokens=256, width=16) == pytest.approx(2**0.5 * 1e9)
    assert CURVE.rate(tokens=64, width=64) == pytest.approx(2e9)


def test_outside_the_measured_range_the_nearest_value_holds_and_is_called_uncovered() -> None:
    assert CURVE.rate(tokens=1, width=16) == pytest.approx(1e9)
    assert CURVE.rate(tokens=1e9, width=1e9) == pytest.approx(8e9)
    assert not CURVE.covers(tokens=1, width=16)
    assert not CURVE.covers(tokens=64, width=2048)
    assert CURVE.covers(tokens=100, width=100)
    assert CURVE.best == 8e9


@given(st.dictionaries(st.tuples(st.sampled_from([16, 64, 256]), st.sampled_from([1, 8, 64, 512])), st.floats(1e6, 1e15), min_size=1),
       st.floats(1, 1e6), st.floats(1, 1e5))
def test_a_rate_never_leaves_the_measured_values(points: dict[tuple[int, int], float], tokens: float, width: float) -> None:
    curve = Curve.of(points, flat=1.0)
    rate = curve.rate(tokens=tokens, width=width)
    assert min(points.values()) * (1 - 1e-9) <= rate <= curve.best * (1 + 1e-9)


@given(st.floats(1.0, 10.0), st.floats(1, 1e6), st.floats(1, 1e5))
def test_a_faster_curve_is_faster_everywhere(factor: float, tokens: float, width: float) -> None:
    faster = Curve.of({(w, t): r * factor for (w, t), r in {(16, 64): 1e9, (256, 64): 4e9, (16, 1024): 2e9, (256, 1024): 8e9}.items()}, flat=1.0)
    assert faster.rate(tokens=tokens, width=width) >= CURVE.rate(tokens=tokens, width=width) * (1 - 1e-9)


def test_layer_flops_by_hand() -> None:
    """576 weights, 2 FLOPs each, 3 sequences of 10 tokens; attention 2·a·e·S² = 1600 each; halved over two shards."""
    model = small_model()
    assert layer_forward_flops(model, sequences=3, tokens_each=10, tp=2) == (2 * 576 * 30 + 3 * 1600) / 2
    assert head_forward_flops(model, sequences=3, tokens_each=10, tp=2, value_head=False) == 2 * 8 * 128 * 30 / 2
    assert head_forward_flops(model, sequences=3, tokens_each=10, tp=2, value_head=True) == 2 * 8 * 30


def test_training_costs_three_forward_passes_and_one_more_when_everything_is_recomputed() -> None:
    assert [training_multiplier(r) for r in ("none", "selective", "full")] == [3, 3, 4]


def test_shards_are_narrower() -> None:
    widths = [equivalent_width(hidden=4096, tp=tp) for tp in (1, 2, 4)]
    assert widths[0] == 4096 and widths[2] == 2048
    assert all(a > b for a, b in pairwise(widths))
