"""Rollout: lengths, decoding, shares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.cost.generation import Generation, Replica, generation_time
from stages.schedule.cost.lengths import expected_longest, mean_age, shape, survival
from stages.schedule.cost.rollout import price_rollout
from stages.schedule.problem import build_problem
from tests.stages.schedule.builders import CPU, SLOW_CPU, big_job, job, small_model, topology


def test_lengths_have_the_right_mean_and_never_pass_the_maximum() -> None:
    k = shape(mean=250, maximum=1000)
    assert k == 3
    steps = np.linspace(0, 1, 100_001)
    assert np.trapezoid([survival(u, k=k) for u in steps], steps) * 1000 == pytest.approx(250, rel=1e-4)
    assert survival(1.0, k=k) == 0


def test_the_longest_of_many_against_sampling() -> None:
    """Inverse of the survival: length = max·(1 − U^(1/k))."""
    rng = np.random.default_rng(0)
    longest = (1000 * (1 - rng.random((20_000, 32)) ** (1 / 3))).max(axis=1).mean()
    assert expected_longest(mean=250, maximum=1000, count=32) == pytest.approx(longest, rel=0.01)
    assert expected_longest(mean=250, maximum=1000, count=1) == pytest.approx(250)
    assert expected_longest(mean=1000, maximum=1000, count=5) == 1000


def test_age_while_the_server_is_full_against_the_moments() -> None:
    """E[l²]/(2E[l]) with E[l²] = 2·max²/((k+1)(k+2)): 1000/5 for k = 3; half the length when all are equal."""
    assert mean_age(mean=250, maximum=1000) == pytest.approx(200)
    assert mean_age(mean=1000, maximum=1000) == 500


def replica(**changes: object) -> Replica:
    fields: dict[str, object] = {"tp": 1, "hbm_bytes_per_s": 1e6, "latency_s": 0.0, "inverse_bandwidth": 0.0, "flops_per_s": lambda tokens: 1e15}
    return Replica(**(fields | changes))  # type: ignore[arg-type]


def generate(n: int, c: int, r: Replica, *, continuous: bool = True, mean: float = 10, maximum: int = 10) -> float:
    return generation_time(model=small_model(), element_bytes=2, sequences=n, in_flight=c, prompt_tokens=20, response_mean=mean, response_max=maximum,
                           replica=r, continuous=continuous, prefill_tokens=0).total_s


WEIGHTS = (4 * 592 + 128 * 8) * 2
KV = 4 * 2 * 1 * 4 * 2  # layers · 2 · kv · e · 2 bytes a token


def test_memory_bound_decoding_reads_weights_and_cache_at_every_step() -> None:
    """Static batch of 4, ten steps at a mean context of 25 tokens; prefill reads the weights once a batch."""
    step = (WEIGHTS + 4 * 25 * KV) / 1e6
    assert generate(4, 4, replica(), continuous=False) == pytest.approx(10 * step + WEIGHTS / 1e6)
    assert generate(8, 4, replica(), continuous=False) == pytest.approx(2 * (10 * step + WEIGHTS / 1e6))


def test_compute_bound_decoding_costs_its_flops() -> None:
    """2·576·4 + 2·8·128 FLOPs a token and 4·L·a·e a token of context; prefill 20 tokens of 4 prompts and one head each."""
    r = replica(hbm_bytes_per_s=1e15, flops_per_s=lambda tokens: 1e6)
    token = 2 * 576 * 4 + 2 * 8 * 128 + 25 * 4 * 4 * 8
    prefill = 4 * (2 * 576 * 80 + 4 * 2 * 8 * 400) + 4 * 2 * 8 * 128
    assert generate(4, 4, r, continuous=False) == pytest.approx((10 * 4 * token + prefill) / 1e6)


def test_tensor_parallel_decoding_pays_latency_at_every_layer_and_step() -> None:
    base, slow = replica(tp=2), replica(tp=2, latency_s=1e-3)
    passes = 10 + 1
    assert generate(4, 4, slow, continuous=False) - generate(4, 4, base, continuous=False) == pytest.approx(passes * 4 * 2 * 2 * 1e-3)


def played(n: int, c: int, mean: float, maximum: int, seed: int) -> float:
    """Continuous batching played step by step with sampled lengths, memory-bound, prompts of 20 tokens; without prefill."""
    rng = np.random.default_rng(seed)
    k = maximum / mean - 1
    waiting = list(np.ceil(maximum * (1 - rng.random(n) ** (1 / k))).astype(int)) if k else [maximum] * n
    running: list[list[int]] = []
    seconds = 0.0
    while waiting or running:
        while waiting and len(running) < c:
            running.append([0, waiting.pop()])
        seconds += (WEIGHTS + sum(20 + age for age, _ in running) * KV) / 1e6
        running = [[age + 1, length] for age, length in running if age + 1 < length]
    return seconds


@pytest.mark.parametrize(("n", "c", "mean", "maximum"), [(64, 64, 50, 200), (64, 8, 50, 200), (200, 16, 40, 400), (48, 16, 100, 100), (12, 12, 100, 600)])
def test_continuous_batching_with_its_tail_against_playing_it(n: int, c: int, mean: float, maximum: int) -> None:
    truth = float(np.mean([played(n, c, mean, maximum, seed) for seed in range(80)]))
    model = generate(n, c, replica(), mean=mean, maximum=maximum)
    assert model == pytest.approx(truth, rel=0.05)


def test_equal_lengths_have_no_tail_and_a_long_maximum_has() -> None:
    def time(mean: float, maximum: int) -> Generation:
        return generation_time(model=small_model(), element_bytes=2, sequences=4, in_flight=4, prompt_tokens=1, response_mean=mean,
                               response_max=maximum, replica=replica(), continuous=True, prefill_tokens=0)
    assert time(10, 10).tail_s == pytest.approx(0, abs=1e-3 * time(10, 10).total_s)
    assert time(10, 100).tail_s > 0.3 * time(10, 100).decode_s


@given(st.integers(1, 200), st.integers(1, 64), st.floats(1, 100))
def test_more_room_and_more_speed_never_hurt(n: int, c: int, factor: float) -> None:
    assert generate(n, c + 8, replica(), mean=10, maximum=30) <= generate(n, c, replica(), mean=10, maximum=30) * (1 + 1e-9)
    assert generate(n, c, replica(hbm_bytes_per_s=1e6 * factor)) <= generate(n, c, replica()) * (1 + 1e-9)


def test_a_faster_replica_takes_more_of_the_batch_and_all_end_together() -> None:
    problem = build_problem(job("tiny-qwen3", prompts=32), topology([(CPU, 1), (SLOW_CPU, 1)]))
    ranks = np.array([[[0]], [[1]]])
    dealt = price_rollout(problem, ranks=ranks, kv_budget=np.array([1e9, 1e9]))
    even = price_rollout(problem, ranks=ranks, kv_budget=np.array([1e9, 1e9]), shares=(64, 64))
    assert dealt is not None and even is not None
    assert dealt.layout.local[0] > 2 * dealt.layout.local[1]
    assert sum(dealt.layout.local) == 128
    assert dealt.price.time_s < 0.75 * even.price.time_s


def test_the_cache_bounds_the_sequences_in_flight() -> None:
    problem = build_problem(big_job(engine={"rollout": "vllm"}), topology([(CPU, 1)]))
    per_sequence = 147456 * 2048
    ranks = np.array([[[0]]])
    roomy, tight = (price_rollout(problem, ranks=ranks, kv_budget=np.array([n * per_sequence])) for n in (64, 4))
    assert roomy is not None and tight is not None
    assert (roomy.layout.micro, tight.layout.micro) == ((64,), (4,))
    assert tight.price.time_s > roomy.price.time_s and not tight.shortfall.any()
    none = price_rollout(problem, ranks=ranks, kv_budget=np.array([0.5 * per_sequence]))
    assert none is not None and none.shortfall[0] == pytest.approx(0.5 * per_sequence)
