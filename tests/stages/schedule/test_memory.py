"""Memory: the published table, and the phases of a group by hand."""

from __future__ import annotations

import pytest

from artifacts.catalog import models
from artifacts.job import Engine
from stages.schedule.cost.iteration import price_group
from stages.schedule.cost.kernel.footprint import padded_vocab
from stages.schedule.cost.memory import activation_bytes, training_state_bytes_per_param
from stages.schedule.draft import Cut, GroupDraft
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import A100, CPU, GIB, big_job, group_price, job, layout, small_model, topology, with_engine

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


def small_problem(*, devices: int = 4, algorithm: str = "grpo", **fields: object) -> Problem:
    """Without memory that no formula gives: 32 sequences of 8 tokens."""
    work = job(small_model(), algorithm=algorithm, prompt=(4, 4), response=(4, 4), **fields)  # type: ignore[arg-type]
    return with_engine(build_problem(work, topology([(A100, devices)])), memory={"per_rank_bytes": 0, "generation_bytes": 0})


def test_early_stages_hold_more_micro_batches() -> None:
    """1F1B: stage j of 4 holds 4 − j, never more than there are; s·b·h·(10 + 24) = 8·8·34 bytes a layer and sequence."""
    kept = 8 * 8 * 34
    logits = 8 * 128 * 4 * 2
    for micro_batches, held in ((8, [4, 3, 2, 1]), (2, [2, 2, 2, 1])):
        where = layout([[[0], [1], [2], [3]]], (1, 1, 1, 1), (32,), (1,), micro_batches)
        working = group_price(small_problem(), actor_training=where).memory.working["actor_training"]
        assert working.tolist() == [held[0] * kept, held[1] * kept, held[2] * kept, held[3] * kept + logits]


def test_full_recomputation_keeps_the_layers_inputs_and_one_layer_s_worth() -> None:
    where = layout([[[0]]], (4,), (32,), (2,), 16)
    problem = small_problem(engine=Engine(recompute="full"))
    working = group_price(problem, actor_training=where).memory.working["actor_training"]
    assert working[0] == 4 * (2 * 2 * 8 * 8) + 2 * 8 * 8 * 34 + 2 * 8 * 128 * 4 * 2


def test_logits_of_the_actual_micro_batch_with_megatron_s_padding() -> None:
    """V 151936 in 8 shards is padded to the next multiple of 1024; logits of 2 sequences of 8 tokens, in inference without a gradient."""
    assert padded_vocab(151936, 8) == 152576
    assert padded_vocab(128, 1) == 128
    wide = layout([[[0, 1]]], (4,), (32,), (2,), 16)
    price = group_price(small_problem(), reference_inference=wide, actor_training=wide)
    hidden, projections = 2 * 8, 8 + 2 * 4 + 3 * 16
    assert price.memory.working["reference_inference"][0] == 16 * 2 * (hidden + projections / 2) + 16 * 256 / 2 * 4
    assert price.memory.working["actor_training"][0] == 4 * 16 * 8 * (10 + 24 / 2) + 16 * 256 / 2 * 4 * 2


def test_kv_cache_of_a_sequence() -> None:
    """2·kv·e·w bytes a token and layer: Qwen3-8B 2·8·128·2·36 = 147456 bytes a token; 3 sequences of 2048 at their longest on 4 shards."""
    problem = build_problem(big_job(algorithm="grpo"), topology([(A100, 4)]))
    price = group_price(problem, rollout=layout([[[0, 1, 2, 3]]], (36,), (3,)))
    assert price.kv_bytes == 3 * 147456 * 2048 / 4
    assert price.memory.working["rollout"].tolist() == [problem.engine.memory.generation_bytes + price.kv_bytes] * 4


def test_a_critic_has_no_vocabulary_at_its_end() -> None:
    """Stages of 3 and 1 layers: embedding on the first, on the last the norm and, in place of the head, one output of h."""
    model, two = small_model(), layout([[[0], [1]]], (3, 1), (32,), (1,), 32)
    problem = small_problem(algorithm="ppo")
    critic = group_price(problem, critic_training=two).memory
    assert critic.resident["critic_training.weights"].tolist() == [2 * (3 * model.layer_params() + 128 * 8), 2 * (model.layer_params() + 2 * 8)]
    assert critic.working["critic_training"][1] == 8 * 8 * 34
    actor = group_price(problem, actor_training=layout([[[0]]], (4,), (32,), (1,), 32)).memory
    assert actor.resident["actor_training.weights"][0] == 2 * model.params()


@pytest.mark.parametrize("name", models())
def test_the_kernel_holds_every_model_s_published_parameters(name: str) -> None:
    """On one device, and of a model whose head is not tied also over two stages (totals: tests/artifacts/test_model_spec.py)."""
    model = models()[name]
    problem = build_problem(job(name), topology([(A100, 2)]))
    stages = [[[0]]] if model.tied_embeddings else [[[0], [1]]]
    layers = (model.layers,) if model.tied_embeddings else (1, model.layers - 1)
    price = group_price(problem, rollout=layout(stages, layers, (32,)))
    assert price.memory.resident["rollout.weights"].sum() == 2 * model.params()


def test_a_tied_head_is_held_once_on_one_stage_and_twice_on_two() -> None:
    model = small_model(tied_embeddings=True)
    work = job(model, prompt=(4, 4), response=(4, 4))
    problem = build_problem(work, topology([(A100, 2)]))
    for where, held in ((layout([[[0]]], (4,), (32,), (1,), 32), model.params()), (layout([[[0], [1]]], (2, 2), (32,), (1,), 32), model.params() + 128 * 8)):
        assert group_price(problem, actor_training=where).memory.resident["actor_training.weights"].sum() == 2 * held


def test_inference_of_a_role_its_group_also_trains_uses_the_trained_weights() -> None:
    problem, where = small_problem(algorithm="ppo"), layout([[[0]]], (4,), (32,), (1,), 32)
    together = group_price(problem, critic_training=where, critic_inference=where).memory
    alone = group_price(problem, critic_inference=where).memory
    assert "critic_inference.weights" not in together.resident
    assert alone.resident["critic_inference.weights"][0] == 2 * (4 * small_model().layer_params() + 128 * 8 + 2 * 8)


def test_every_rank_has_a_process_for_the_models_and_one_for_the_engine() -> None:
    """Tasks of a group on other ranks than each other: reference on devices 0 and 1, training on 1 and 2, rollout on 3."""
    problem = build_problem(job("tiny-qwen3"), topology([(A100, 4)]))
    memory = group_price(
        problem,
        rollout=layout([[[3]]], (4,), (32,)),
        reference_inference=layout([[[0]], [[1]]], (4,), (16, 16), (4, 4), 4),
        actor_training=layout([[[1]], [[2]]], (4,), (16, 16), (4, 4), 4),
    ).memory
    each = problem.engine.memory.per_rank_bytes
    assert memory.resident["model.process"].tolist() == [each, each, each, 0]
    assert memory.resident["rollout.process"].tolist() == [0, 0, 0, each]


def test_what_is_offloaded_waits_in_the_machine_s_memory_and_is_back_while_its_task_runs() -> None:
    """18 bytes a parameter leave and come over 25e9 B/s; a CPU's memory is the machine's own, so nothing moves there."""
    params, where = models()["tiny-qwen3"].params(), layout([[[0]]], (4,), (32,), (4,), 8)
    for kind, moved in ((A100, 18.0 * params), (CPU, 0.0)):
        problem = build_problem(job("tiny-qwen3", engine=Engine(offload=True)), topology([(kind, 1)]))
        price = group_price(problem, actor_training=where)
        assert price.memory.offloaded.get("actor_training", [0.0])[0] == moved
        assert price.memory.resident.get("actor_training.optimizer", [0.0])[0] == (0 if moved else 12 * params)
        assert price.prices["actor_training"].terms.get("offload", 0.0) == pytest.approx(2 * moved / 25e9)
        activations = 4 * (4 * 128 * 64 * 34) + 4 * 128 * 512 * 4 * 2
        assert price.memory.working["actor_training"][0] == activations + moved


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
    """8B with Adam on one 80 GiB GPU needs 18 bytes a parameter: 137 GiB."""
    problem = build_problem(big_job(algorithm="grpo"), topology([(A100, 1)]))
    price = price_group(problem, GroupDraft(tasks=("actor_training",), devices=(0,), cut=Cut(dp=1, pp=1, tp=1, micro=1)))
    assert price is not None and price.overflow > 0.7
    assert price.memory.resident["actor_training.optimizer"][0] == 12 * 8_190_735_360
