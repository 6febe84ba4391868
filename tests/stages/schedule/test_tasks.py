"""Training and inference on a layout, worked out by hand from the equations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.calibration import Calibration, Factor
from artifacts.job import Engine
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import Kind, group_price, job, layout, small_model, task_price, topology, with_engine
from tests.stages.schedule.reference.tasks import one_f_one_b

FAST = Kind("fast", 1e6, 1e12, 2**33, vendor="cpu", inside=1e9)
SLOW = Kind("slow", 5e5, 1e12, 2**33, vendor="cpu", inside=1e9)
LAN = (1e-3, 1e5)

# small model: 576 weights in projections and MLP, 592 with norms; one sequence of 4 + 4 tokens (the HF rollout engine pads to the maximum):
# layer forward = 2·576·8 + 2·2·4·8² = 10240 FLOPs, head = 2·8·128·8 = 16384 FLOPs, activations = 8 tokens · 8 · 2 bytes = 128 bytes
# the host launches in no time (test_terms.py is about that); the pointwise operations of a layer move 8 · (10·8 + 3·16 + 2·(8 + 4)) · 2 bytes, the softmax 8 · 128 · 30, and 14 more backward
LAYER, HEAD, ACTIVATION = 10240.0, 16384.0, 128.0
MOVED, SOFTMAX = 8 * 152 * 2.0, 8 * 128.0


def problem(kinds: list[tuple[Kind, int]], *, calibration: Calibration | None = None, mini: int = 0, recompute: str = "none") -> Problem:
    work = job(small_model(), prompts=4, responses=2, mini=mini, micro=1, prompt=(4, 4), response=(4, 4), engine=Engine(recompute=recompute))  # type: ignore[arg-type]
    return with_engine(build_problem(work, topology(kinds, lan=LAN), calibration), launch_layer_s=0.0, launch_token_s=0.0, hop_messages=1)


def test_one_f_one_b_with_unequal_stages() -> None:
    """Four micro-batches through stages of 1 and 3 seconds: the first enters the slow stage at 1, it then works 4·3 s without a pause."""
    assert one_f_one_b([1.0, 3.0], 4) == 1 + 3 + 3 * 3 == 13
    assert one_f_one_b([2.0, 2.0, 2.0], 5) == (5 + 3 - 1) * 2
    assert one_f_one_b([7.0], 3) == 21


def test_training_on_two_stages_by_hand() -> None:
    """Stages of 3 and 1 layers on machines of their own, 8 micro-batches of one sequence, one optimizer step."""
    p = problem([(FAST, 1), (FAST, 1)])
    price = task_price(p, "actor_training", layout([[[0], [1]]], (3, 1), (8,), (1,), 8))
    hop = 2 * (1e-3 + ACTIVATION / 1e5)
    first = 3 * 3 * (LAYER / 1e6 + MOVED / 1e12) + hop
    last = 3 * LAYER / 1e6 + 3 * HEAD / 1e6 + (3 * MOVED + 44 * SOFTMAX) / 1e12
    assert price.terms["compute"] == pytest.approx(8 * 9 * LAYER / 1e6)
    assert price.terms["pp"] == pytest.approx(8 * hop)
    assert price.terms["bubble"] == pytest.approx(last)
    assert price.terms["activations"] == pytest.approx(8 * 9 * MOVED / 1e12)
    assert set(price.terms) == {"compute", "activations", "pp", "bubble", "optimizer"}
    assert price.time_s == pytest.approx(first + last + 7 * max(first, last) + price.terms["optimizer"])


def test_every_mini_batch_pays_its_own_pipeline_and_gradient_synchronisation() -> None:
    """dp 2 over machines, 4 optimizer steps of one sequence a replica: reduce-scatter of 4-byte gradients, all-gather of 2-byte weights."""
    p = problem([(FAST, 1), (FAST, 1)], mini=1)
    price = task_price(p, "actor_training", layout([[[0]], [[1]]], (4,), (4, 4), (1, 1), 1))
    params = small_model().params()
    assert params == 4 * 592 + 2 * 128 * 8 + 8
    once = (1e-3 + 4 * params / 2 / 1e5) + (1e-3 + 2 * params / 2 / 1e5)
    assert price.terms["dp"] == pytest.approx(4 * once)
    assert price.terms["compute"] == pytest.approx(4 * 3 * (4 * LAYER + HEAD) / 1e6)
    assert price.terms["optimizer"] == pytest.approx(4 * 30 * params / 2 / 1e12)


def test_tensor_parallel_all_reduces_by_hand() -> None:
    """tp 2 inside a machine: forward and backward, two all-reduces each and layer, 2·(α + bytes/(2β)) on 128 bytes; compute halves."""
    p = problem([(FAST, 2)])
    price = task_price(p, "actor_training", layout([[[0, 1]]], (4,), (8,), (1,), 8))
    once = 2 * (5e-6 + ACTIVATION / 2 / 1e9)
    assert price.terms["tp"] == pytest.approx(8 * 4 * 4 * once)
    assert price.terms["compute"] == pytest.approx(8 * 3 * (4 * LAYER + HEAD) / 2 / 1e6)


def test_full_recomputation_repeats_the_layers_but_not_the_head() -> None:
    p = problem([(FAST, 1)], recompute="full")
    price = task_price(p, "actor_training", layout([[[0]]], (4,), (8,), (1,), 8))
    assert price.terms["compute"] == pytest.approx(8 * (4 * 4 * LAYER + 3 * HEAD) / 1e6)


def test_inference_is_one_forward_pass_over_the_batch() -> None:
    p = problem([(FAST, 1)], mini=1)
    price = task_price(p, "reference_inference", layout([[[0]]], (4,), (8,), (1,), 2))
    assert price.terms == {
        "compute": pytest.approx(8 * (4 * LAYER + HEAD) / 1e6),
        "activations": pytest.approx(8 * (4 * MOVED + 30 * SOFTMAX) / 1e12),
    }


def test_the_actor_s_old_log_probabilities_are_one_more_forward_pass() -> None:
    """Of the whole batch, though the layout's micro-batches are those of a mini-batch: 2 sequences of 8."""
    p = problem([(FAST, 1)], mini=1)
    price = group_price(p, actor_training=layout([[[0]]], (4,), (8,), (1,), 2))
    assert price.prices["actor_log_prob"].terms["compute"] == pytest.approx(8 * (4 * LAYER + HEAD) / 1e6)
    assert price.prices["actor_log_prob"].terms == task_price(p, "reference_inference", layout([[[0]]], (4,), (8,), (1,), 2)).terms
    assert price.inference_s == price.prices["actor_log_prob"].time_s


def test_the_slowest_replica_and_the_slowest_shard_set_the_pace() -> None:
    p = problem([(FAST, 1), (SLOW, 1)])
    even = task_price(p, "reference_inference", layout([[[0]], [[1]]], (4,), (4, 4), (1, 1), 4))
    shards = task_price(p, "reference_inference", layout([[[0, 1]]], (4,), (8,), (1,), 8))
    assert even.terms["compute"] == pytest.approx(4 * (4 * LAYER + HEAD) / 5e5)
    assert shards.terms["compute"] == pytest.approx(8 * (4 * LAYER + HEAD) / 2 / 5e5)


def test_calibration_multiplies_the_task_s_time_on_its_device_class() -> None:
    learned = Calibration(factors=[Factor(device_class="fast", task="actor_training", factor=2.5, observations=3)], runs=1)
    where = layout([[[0], [1]]], (3, 1), (8,), (1,), 8)
    plain, factored = problem([(FAST, 2)]), problem([(FAST, 2)], calibration=learned)
    before, after = (task_price(p, "actor_training", where).time_s for p in (plain, factored))
    assert after == pytest.approx(2.5 * before)
    reference = [task_price(p, "reference_inference", where).time_s for p in (plain, factored)]
    assert reference[0] == reference[1]


@given(st.floats(1, 100), st.integers(1, 3), st.sampled_from(["actor_training", "reference_inference"]))
def test_a_faster_device_never_computes_slower(factor: float, layers: int, name: str) -> None:
    where = layout([[[0], [1]]], (layers, 4 - layers), (8,), (1,), 8)
    slow = problem([(FAST, 1), (SLOW, 1)])
    fast = problem([(FAST, 1), (Kind("slow", 5e5 * factor, 1e12, 2**33, vendor="cpu", inside=1e9), 1)])
    before, after = (task_price(p, name, where) for p in (slow, fast))
    assert after.time_s <= before.time_s * (1 + 1e-9)
