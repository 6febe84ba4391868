"""Terms beside FLOPs, weights and messages, worked out by hand: the host, unfused attention, operations that are not fused, full sharding,
what offloading moves.
"""

from __future__ import annotations

import pytest

from artifacts.catalog.engines import DecodeHost
from artifacts.job import Engine
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import Kind, group_price, job, layout, small_model, task_price, topology, with_engine

FAST = Kind("fast", 1e6, 1e6, 2**33, vendor="cpu", inside=1e6)
GPU = Kind("gpu", 1e6, 1e6, 2**33, inside=1e6)
TOKENS = 8
"""One sequence, padded: 4 + 4."""
LAYER = 2 * 576 * TOKENS + 2 * 2 * 4 * TOKENS**2
ONE = layout([[[0]]], (4,), (8,), (1,), 8)


def problem(kind: Kind = FAST, count: int = 1, *, recompute: str = "none", offload: bool = False, **engine: object) -> Problem:
    work = job(
        small_model(), prompts=4, responses=2, micro=1, prompt=(4, 4), response=(4, 4),
        engine=Engine(recompute=recompute, offload=offload, rollout="vllm" if kind.vendor != "cpu" else "auto"),  # type: ignore[arg-type]
    )  # fmt: skip
    return with_engine(build_problem(work, topology([(kind, count)])), **{"launch_layer_s": 0.0, "launch_token_s": 0.0, "host_flops_per_s": 0.0, **engine})  # type: ignore[arg-type]


def test_a_layer_takes_at_least_the_time_to_launch_it() -> None:
    """One pass forward, two in training, three with recomputation; what is longer than the rest is the host's."""
    for name, recompute, passes in (("reference_inference", "none", 1), ("actor_training", "none", 2), ("actor_training", "full", 3)):
        before = task_price(problem(recompute=recompute), name, ONE)
        after = task_price(problem(recompute=recompute, launch_layer_s=10.0), name, ONE)
        layers = before.time_s - before.terms.get("optimizer", 0.0)
        ends = ((1 if passes == 1 else 3) * 2 * 8 * 128 * TOKENS + (30 if passes == 1 else 44) * 128 * TOKENS) / 1e6
        assert after.time_s - before.time_s == pytest.approx(8 * 4 * passes * 10.0 - (layers - 8 * ends))
        assert after.terms["host"] == pytest.approx(after.time_s - before.time_s)
        assert task_price(problem(recompute=recompute, launch_layer_s=1e-3), name, ONE).terms == before.terms


def test_a_cpu_device_is_its_own_host() -> None:
    """Half as fast as the device on which the host's time was measured: twice as long, and nothing is computed meanwhile."""
    for name, recompute, passes in (("reference_inference", "none", 1), ("actor_training", "none", 2), ("actor_training", "full", 3)):
        before = task_price(problem(recompute=recompute), name, ONE)
        after = task_price(problem(recompute=recompute, launch_layer_s=10.0, host_flops_per_s=2e6), name, ONE)
        assert after.time_s - before.time_s == pytest.approx(8 * 4 * passes * 20.0)
        assert after.terms["host"] == pytest.approx(8 * 4 * passes * 20.0)
        more = task_price(problem(recompute=recompute, launch_layer_s=10.0, launch_token_s=0.5, host_flops_per_s=2e6), name, ONE)
        assert more.terms["host"] == pytest.approx(8 * 4 * passes * 2 * (10.0 + 0.5 * TOKENS)), "eight micro-batches, four layers"


def test_forward_and_backward_wait_for_the_host_each_by_itself() -> None:
    """Between the two: the forward pass is launched slower than it runs, the backward pass, of twice the work, is not."""
    before = task_price(problem(), "actor_training", ONE)
    forward = LAYER / 1e6 + TOKENS * 152 * 2 / 1e6
    after = task_price(problem(launch_layer_s=1.5 * forward), "actor_training", ONE)
    assert after.terms["host"] == pytest.approx(8 * 4 * 0.5 * forward)
    assert after.time_s - before.time_s == pytest.approx(after.terms["host"])


def test_attention_that_is_not_fused_computes_the_masked_half_and_moves_its_scores() -> None:
    fused, plain = (task_price(problem(flash_attention=flash), "reference_inference", ONE).terms for flash in (True, False))
    assert plain["compute"] - fused["compute"] == pytest.approx(8 * 4 * 2 * 2 * 4 * TOKENS**2 / 1e6)
    assert plain["activations"] - fused["activations"] == pytest.approx(8 * 4 * TOKENS * 6.5 * 2 * TOKENS * 2 / 1e6)


def test_operations_that_are_not_fused_move_more() -> None:
    """A token and layer: 42·h + 5·f + 12·(q + kv) elements in place of 10·h + 3·f + 2·(q + kv)."""
    fused, plain = (task_price(problem(fused_operations=f), "reference_inference", ONE).terms for f in (True, False))
    more = (42 - 10) * 8 + (5 - 3) * 16 + (12 - 2) * (8 + 4)
    assert plain["activations"] - fused["activations"] == pytest.approx(8 * 4 * TOKENS * more * 2 / 1e6)


def test_sequence_parallelism_divides_norms_and_residuals() -> None:
    both = layout([[[0, 1]]], (4,), (8,), (1,), 8)
    whole, divided = (task_price(problem(count=2, sequence_parallel=s), "reference_inference", both).terms for s in (False, True))
    assert whole["activations"] - divided["activations"] == pytest.approx(8 * 4 * TOKENS * 10 * 8 / 2 * 2 / 1e6)


def test_fully_sharded_weights_are_gathered_for_every_pass_and_take_less_memory() -> None:
    """Two replicas of four micro-batches: two gathers of 2-byte weights each, a scatter of 4-byte gradients each; one gather in inference."""
    where, params = layout([[[0]], [[1]]], (4,), (4, 4), (1, 1), 4), small_model().params()
    shared = problem(count=2, fully_sharded=True)
    gather, scatter = (5e-6 + bytes_ * params / 2 / 1e6 for bytes_ in (2, 4))
    assert task_price(shared, "actor_training", where).terms["dp"] == pytest.approx(4 * (2 * gather + scatter))
    assert task_price(shared, "reference_inference", where).terms["dp"] == pytest.approx(4 * gather)
    memory = group_price(shared, actor_training=where).memory
    assert memory.resident["actor_training.weights"].tolist() == pytest.approx([params, params])
    assert memory.resident["actor_training.gradients"].tolist() == pytest.approx([2 * params, 2 * params])
    plain = group_price(problem(count=2), actor_training=where).memory
    assert memory.working["actor_training"] - plain.working["actor_training"] == pytest.approx([2 * 2 * 592] * 2)


def test_without_divided_hops_every_shard_sends_all() -> None:
    """From m0 to m1, two shards that share the link: 2·(α + 2·bytes/β) both ways, or half the bytes each."""
    where = layout([[[0, 1], [2, 3]]], (3, 1), (8,), (1,), 8)

    def hops(divided: bool) -> float:
        p = with_engine(build_problem(problem().job, topology([(FAST, 2)] * 2, lan=(1e-3, 1e5))), divided_hops=divided, hop_messages=1, launch_layer_s=0.0,
                        launch_token_s=0.0)
        return task_price(p, "actor_training", where).terms["pp"]

    assert hops(divided=False) == pytest.approx(8 * 2 * (1e-3 + 2 * 128 / 1e5))
    assert hops(divided=True) == pytest.approx(8 * 2 * (1e-3 + 128 / 1e5))


def test_a_decode_step_waits_for_the_host() -> None:
    """4 sequences for 4 steps each: a gap, a little for each sequence, and launching 4 layers where that takes longer than the step."""
    where = layout([[[0]]], (4,), (4,), (4,), 1)

    def host(**fields: float) -> float:
        zero = {"gap_s": 0.0, "sequence_s": 0.0, "layer_s": 0.0}
        p = with_engine(problem(GPU), rollout={"host": DecodeHost(**(zero | fields)), "continuous_batching": False})
        return task_price(p, "rollout", where).terms.get("host", 0.0)

    assert host() == 0.0
    assert host(gap_s=0.5, sequence_s=0.25) == pytest.approx(4 * (0.5 + 4 * 0.25))
    context = 4 + 4 / 2
    read = (4 * 592 + 128 * 8) * 2 / 1e6
    flops = 4 * (4 * 2 * 576 + 2 * 8 * 128) / 1e6
    attention = max(4 * context * 4 * 2 * 4 * 2, 4 * context * 4 * 4 * 2 * 4) / 1e6
    assert host(layer_s=10.0) == pytest.approx(4 * (4 * 10.0 - max(read, flops) - attention))


def test_inference_with_the_trained_weights_moves_them_in_and_out() -> None:
    """With offload: the actor's old log-probabilities bring 2 bytes a parameter over the host link and back; training all it holds."""
    params = small_model().params()
    group = group_price(problem(GPU, offload=True), actor_training=ONE)
    assert group.prices["actor_log_prob"].terms["offload"] == pytest.approx(2 * 2 * params / 25e9)
    assert group.prices["actor_training"].terms["offload"] == pytest.approx(2 * (2 + 4 + 12) * params / 25e9)
    assert "offload" not in group_price(problem(GPU), actor_training=ONE).prices["actor_log_prob"].terms
