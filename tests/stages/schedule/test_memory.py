"""Memory: the published table, and the phases of a group by hand."""

from __future__ import annotations

import pytest

from artifacts.catalog import models
from stages.schedule.cost.iteration import price_group
from stages.schedule.cost.memory import (
    activation_bytes,
    held_params,
    in_flight_micro_batches,
    kv_bytes_per_sequence,
    logits_bytes,
    padded_vocab,
    training_state_bytes_per_param,
)
from stages.schedule.draft import Cut, GroupDraft
from stages.schedule.problem import build_problem
from tests.stages.schedule.builders import A100, GIB, big_job, job, small_model, topology

# Korthikanti et al., arXiv 2205.05198, figure 1: fp16, sequence 2048; (L, h, a, b, tp, pp, interleave) → activations without recomputation,
# activations with selective recomputation and sequence parallelism, parameters and optimizer state; GiB on the first stage.
FIGURE_1 = {
    "22B": ((48, 6144, 64, 4, 8, 1, 1), (59.25, 9.5625, 45.5625)),
    "175B": ((96, 12288, 96, 1, 8, 8, 3), (66.84375, 12.3515625, 45.5625)),
    "530B": ((105, 20480, 128, 1, 8, 35, 3), (114.0234375, 23.076171875, 31.640625)),
    "1T": ((128, 25600, 160, 1, 8, 64, 1), (131.25, 26.5625, 32.958984375)),
}


@pytest.mark.parametrize("name", FIGURE_1)
def test_published_activation_memory(name: str) -> None:
    (layers, hidden, heads, micro, tp, pp, interleave), (none, selective, state) = FIGURE_1[name]

    def gib(recompute: str) -> float:
        # the first stage keeps pp micro-batches of its L/pp layers; layers times in-flight is L, also where pp does not divide L
        return activation_bytes(layers=layers, in_flight=1, tokens=2048, micro=micro, hidden=hidden, heads=heads, tp=tp, recompute=recompute,
                                interleave=interleave, stages=pp) / GIB

    assert gib("none") == none
    assert gib("selective") == selective
    per_param = training_state_bytes_per_param(element_bytes=2, gradient_bytes=4, optimizer_shards=1)
    assert per_param == 18
    assert 12 * hidden**2 * layers / pp / tp * per_param / GIB == state


def test_optimizer_state_divides_over_replicas_and_float32_keeps_no_copy() -> None:
    assert training_state_bytes_per_param(element_bytes=2, gradient_bytes=4, optimizer_shards=4) == 2 + 4 + 3
    assert training_state_bytes_per_param(element_bytes=4, gradient_bytes=4, optimizer_shards=1) == 16


def test_early_stages_hold_more_micro_batches() -> None:
    assert [in_flight_micro_batches(stage=j, stages=4, micro_batches=8) for j in range(4)] == [4, 3, 2, 1]
    assert in_flight_micro_batches(stage=0, stages=4, micro_batches=2) == 2


def test_logits_of_the_actual_micro_batch_with_megatron_s_padding() -> None:
    assert padded_vocab(151936, 8) == 152576  # next multiple of 1024
    assert logits_bytes(vocab=151936, tokens=4096, tp=8, training=True) == 4096 * 152576 / 8 * 4 * 2
    assert logits_bytes(vocab=128, tokens=10, tp=1, training=False) == 10 * 128 * 4


def test_kv_cache_of_a_sequence() -> None:
    """2·kv·e·w bytes a token and layer: Qwen3-8B 2·8·128·2·36 = 147456 bytes a token."""
    assert kv_bytes_per_sequence(models()["Qwen3-8B"], tokens=2048, tp=4, element_bytes=2) == 147456 * 2048 / 4


def test_a_critic_has_no_vocabulary_at_its_end() -> None:
    model = small_model()
    whole = held_params(model, layers=4, first=True, last=True, value_head=True)
    assert whole == 4 * model.layer_params() + 128 * 8 + 2 * 8
    assert held_params(model, layers=4, first=True, last=True, value_head=False) == model.params()


def test_a_group_s_memory_is_the_sum_of_its_tasks() -> None:
    """GRPO on two GPUs, dp 2, everything in one group: by hand from the parameter count P of the tiny model."""
    problem = build_problem(job("tiny-qwen3"), topology([(A100, 2)]))
    price = price_group(problem, GroupDraft(tasks=("rollout", "reference_inference", "actor_training"), devices=(0, 1),
                                            cut=Cut(dp=2, pp=1, tp=1, micro=4), rollout_tp=1))
    assert price is not None
    params, memory, engine = models()["tiny-qwen3"].params(), price.memory, problem.engine.memory
    held = {name: values[0] for name, values in memory.resident.items()}
    assert held == {
        "model.process": engine.per_rank_bytes, "rollout.process": engine.per_rank_bytes,
        "rollout.weights": 2 * params, "reference_inference.weights": 2 * params,
        "actor_training.weights": 2 * params, "actor_training.gradients": 4 * params, "actor_training.optimizer": 12 / 2 * params,
    }
    # 32 sequences over two replicas: all 16 in flight, 128 tokens each; KV 2·kv·e·w·L bytes a token
    assert memory.working["rollout"][0] == engine.generation_bytes + 16 * 128 * (2 * 2 * 32 * 2 * 4)
    # micro-batch of 4 sequences: tokens·h·(10+24) a layer without the attention matrix, and logits with their gradient, V 512 padded to itself
    assert memory.working["actor_training"][0] == 4 * (4 * 128 * 64 * 34) + 4 * 128 * 512 * 4 * 2
    assert price.overflow == 0
    assert memory.peak()[0] == pytest.approx(sum(held.values()) + max(w[0] for w in memory.working.values()))


def test_a_model_too_large_for_its_devices_is_said_to_overflow() -> None:
    """Case: OOM after the first optimizer step. 8B with Adam on one 80 GiB GPU needs 18 bytes a parameter: 137 GiB."""
    problem = build_problem(big_job(algorithm="grpo"), topology([(A100, 1)]))
    price = price_group(problem, GroupDraft(tasks=("actor_training",), devices=(0,), cut=Cut(dp=1, pp=1, tp=1, micro=1)))
    assert price is not None and price.overflow > 0.7
    assert price.memory.resident["actor_training.optimizer"][0] == 12 * 8_190_735_360
