"""Continuous batching: every token made once, never more in the cache than fits; runs in closed form against a plain loop over steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.catalog import models
from artifacts.catalog.engines import DecodeHost
from stages.train.engines.simulator.decoding import Server, _sum_of_larger, generate, generate_static

SPEC = models()["Qwen3-4B"]
NO_HOST = DecodeHost(gap_s=0, sequence_s=0, layer_s=0)


def server(*, kv_tokens: int = 10**9, most: int = 256, budget: int = 8192, flops: float = 2e14,
           host: DecodeHost = NO_HOST, own_host: bool = False) -> Server:
    return Server(model=SPEC, element_bytes=2, tp=1, read_bytes_per_s=1e12, flops_per_s=lambda tokens: flops, best_flops_per_s=flops,
                  fused=True, host=host, own_host=own_host, kv_tokens=kv_tokens,
                  most_sequences=most, most_tokens=budget)


def weights_s() -> float:
    return (SPEC.layers * SPEC.layer_params() + SPEC.embedding_params()) * 2 / 1e12


@given(st.floats(0, 5), st.floats(0, 1), st.floats(0, 5), st.floats(0, 1), st.integers(1, 60))
def test_the_larger_of_two_lines_is_summed_exactly(a: float, a_more: float, b: float, b_more: float, steps: int) -> None:
    plain = sum(max(a + i * a_more, b + i * b_more) for i in range(steps))
    assert _sum_of_larger(a, a_more, b, b_more, steps) == pytest.approx(plain, rel=1e-9, abs=1e-9)


def test_one_sequence_by_hand() -> None:
    """A prefill step, then a step for each further token that reads the weights and the cache so far (bandwidth-bound at width 1)."""
    runs = generate(server(), [100], [50])
    cache = SPEC.layers * SPEC.kv_bytes_per_token_layer() / 1e12
    assert [(r.steps, r.tokens, r.prefill) for r in runs] == [(1, 100, True), (49, 49, False)]
    assert runs[1].busy_s == pytest.approx(sum(weights_s() + (101 + i) * cache for i in range(49)))


def test_every_step_waits_for_the_host() -> None:
    """A gap, something for each of two sequences, and at least the time to launch 36 layers."""
    idle, busy, slow = (
        generate(server(host=host), [10] * 2, [20] * 2)
        for host in (NO_HOST, DecodeHost(gap_s=0.5, sequence_s=0.25, layer_s=0), DecodeHost(gap_s=0, sequence_s=0, layer_s=1))
    )
    assert busy[1].busy_s - idle[1].busy_s == pytest.approx(19 * (0.5 + 2 * 0.25))
    assert slow[1].busy_s == pytest.approx(19 * SPEC.layers)
    alone = generate(server(host=DecodeHost(gap_s=0, sequence_s=0, layer_s=1), own_host=True), [10] * 2, [20] * 2)
    assert alone[1].busy_s - idle[1].busy_s == pytest.approx(19 * SPEC.layers), "a device that is its own host launches, then computes"


def test_equal_responses_run_in_waves() -> None:
    runs = generate(server(most=16), [64] * 40, [32] * 40)
    assert sum(r.steps for r in runs) == 3 * 32


def test_long_prompts_are_filled_in_chunks_of_the_budget() -> None:
    runs = generate(server(budget=1000), [3500], [2])
    assert [r.tokens for r in runs if r.prefill] == [1000, 1000, 1000, 500]


def test_a_full_cache_puts_sequences_back_and_costs_prefill_again() -> None:
    roomy, tight = generate(server(), [100] * 8, [100] * 8), generate(server(kv_tokens=1000), [100] * 8, [100] * 8)
    filled = [sum(r.tokens for r in runs if r.prefill) - sum(1 for r in runs if r.prefill) for runs in (roomy, tight)]
    assert filled[1] > filled[0] + 100
    assert sum(r.busy_s for r in tight) > sum(r.busy_s for r in roomy)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=20), st.integers(101, 400), st.integers(1, 8),
       st.sampled_from([0, 24, 64]))
def test_no_token_is_lost(lengths: list[tuple[int, int]], kv: int, most: int, budget: int) -> None:
    """Decoded and filled tokens cover every prompt and response; the longest response is a bound below on the steps."""
    prompts, responses = [p for p, _ in lengths], [r for _, r in lengths]
    runs = generate(server(kv_tokens=kv, most=most, budget=budget), prompts, responses)
    assert sum(r.tokens for r in runs) >= sum(prompts) + sum(responses) - len(lengths)
    if kv >= sum(prompts) + sum(responses) + len(lengths):
        assert sum(r.tokens for r in runs) == sum(prompts) + sum(responses) - len(lengths), "the first token comes with the prompt"
    assert sum(r.steps for r in runs) >= max(responses)
    assert all(r.tokens <= r.steps * max(most, 1) for r in runs if not r.prefill)
    assert all(r.busy_s >= r.steps * weights_s() for r in runs)


def test_a_static_batch_runs_until_its_longest_ends() -> None:
    runs = generate_static(server(most=2), [10, 10, 10], [5, 50, 7])
    assert [(r.steps, r.prefill) for r in runs] == [(1, True), (50, False), (1, True), (7, False)]
    assert runs[1].tokens == 2 * 50
