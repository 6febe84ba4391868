"""Orders of ranks, splits of layers, deals of batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.plan import pipeline_layout
from stages.train.engines.verl.ranks import deal, megatron_order, micro_sizes, pieces, replica_of
from tests.stages.train.support import strategy


def test_megatron_counts_shards_then_replicas_then_stages() -> None:
    # Plan order (replica, stage, shard): r0s0k0 r0s0k1 r0s1k0 r0s1k1 r1s0k0 r1s0k1 r1s1k0 r1s1k1.
    plan = strategy(["a", "b", "c", "d", "e", "f", "g", "h"], dp=2, pp=2, tp=2)
    assert megatron_order(plan) == ["a", "b", "e", "f", "c", "d", "g", "h"]
    assert [replica_of(plan, rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_megatron_order_agrees_with_megatron_core() -> None:
    """Megatron-Core's own generator, asked for its groups of ranks."""
    parallel_state = pytest.importorskip("megatron.core.parallel_state")
    groups = parallel_state.RankGenerator(tp=2, ep=1, dp=3, pp=2, cp=1, order="tp-cp-ep-dp-pp")
    plan = strategy([f"d{i}" for i in range(12)], dp=3, pp=2, tp=2, shares=[12, 12, 8])
    order = megatron_order(plan)
    replicas = {frozenset(order[rank] for rank in group) for group in groups.get_ranks("tp-pp")}
    assert replicas == {frozenset(plan.rank(i, j, k) for j in range(2) for k in range(2)) for i in range(3)}
    stages = {frozenset(order[rank] for rank in group) for group in groups.get_ranks("tp-dp")}
    assert stages == {frozenset(plan.rank(i, j, k) for i in range(3) for k in range(2)) for j in range(2)}


@pytest.mark.parametrize(("layers", "text"), [([4], "Et*4L"), ([3, 1], "Et*3|tL"), ([1, 2, 1], "Et|t*2|tL")])
def test_pipeline_layout(layers: list[int], text: str) -> None:
    assert pipeline_layout(layers) == text


def test_megatron_reads_the_layout_as_meant() -> None:
    layout = pytest.importorskip("megatron.core.transformer.pipeline_parallel_layer_layout")
    enums = pytest.importorskip("megatron.core.transformer.enums")
    parsed = layout.PipelineParallelLayerLayout.from_str(pipeline_layout([3, 1]), pipeline_model_parallel_size=2)
    decoders = [stage[0].count(enums.LayerType.decoder) for stage in parsed.layout]
    assert decoders == [3, 1]


@given(st.lists(st.integers(1, 500), min_size=2, max_size=60), st.integers(1, 4))
def test_a_deal_gives_every_sequence_once_and_the_counts_exactly(lengths: list[int], replicas: int) -> None:
    replicas = min(replicas, len(lengths))
    counts = [1] * replicas
    counts[0] += len(lengths) - replicas
    hands = deal(lengths, counts)
    assert [len(hand) for hand in hands] == counts
    assert sorted(index for hand in hands for index in hand) == list(range(len(lengths)))


def test_tokens_follow_the_counts() -> None:
    lengths = [40, 10] * 24
    hands = deal(lengths, [36, 12])
    tokens = [sum(lengths[i] for i in hand) for hand in hands]
    assert tokens[0] / tokens[1] == pytest.approx(3, rel=0.1)


def test_a_deal_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="3 sequences"):
        deal([1, 2, 3], [1, 1])


def test_replicas_make_equally_many_micro_batches() -> None:
    plan = strategy(["a", "b"], dp=2, shares=[88, 40], micro=11)
    assert pieces(plan) == 8
    assert pieces(plan, mini_batches=4) == 2
    assert micro_sizes(88, 11) == [11] * 8


@pytest.mark.parametrize(("count", "largest", "sizes"), [(11, 4, [4, 4, 3]), (4, 8, [4]), (7, 3, [3, 2, 2])])
def test_micro_batches_are_as_even_as_can_be(count: int, largest: int, sizes: list[int]) -> None:
    assert micro_sizes(count, largest) == sizes
