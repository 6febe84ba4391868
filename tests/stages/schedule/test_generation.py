"""Rollout: lengths, decoding, shares, all through the kernel; the numbers by hand, by sampling, or by playing it step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.catalog.engines import DecodeHost
from artifacts.job import Engine, Lengths
from stages.schedule.cost.iteration import TaskPrice
from stages.schedule.cost.lengths import mean_age, node_lengths, survival_at
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import (
    CPU,
    SLOW_CPU,
    Kind,
    big_job,
    group_price,
    job,
    layout,
    small_model,
    task_price,
    topology,
    with_engine,
)
from tests.stages.schedule.reference.lengths import expected_longest, survival

PROMPT = 20
WEIGHTS = (4 * 592 + 128 * 8) * 2
KV = 4 * 2 * 1 * 4 * 2
"""Bytes of a token: layers · 2 · kv · e · 2."""
MOVED = 4 * (10 * 8 + 3 * 16 + 2 * (8 + 4)) * 2
"""Bytes that norms, residuals, gate and attention move for a token of a prompt: layers · (10·h + 3·f + 2·q + 2·kv) · 2."""
MEMORY_BOUND = {"flops": 1e15, "hbm": 1e6}
COMPUTE_BOUND = {"flops": 1e6, "hbm": 1e15}


def server(*, in_flight: int, continuous: bool = True, mean: float = 10, maximum: int = 10, quantiles: dict[float, int] | None = None,
           prompt: int = PROMPT, devices: int = 1, inside: float = 1e9, **rates: float) -> Problem:  # fmt: skip
    """The small model on CPUs of given rates, with no memory and no time of the host but what formulas give; so many sequences at once."""
    kind = Kind("server", memory=2**33, vendor="cpu", inside=inside, **(MEMORY_BOUND | rates))  # type: ignore[arg-type]
    work = job(small_model(), prompt=(prompt, prompt), engine=Engine(rollout="vllm"))
    work = work.model_copy(update={"response_tokens": Lengths(mean=mean, max=maximum, quantiles=quantiles or {})})
    return with_engine(build_problem(work, topology([(kind, devices)])),
                       rollout={"sequences_in_flight": in_flight, "continuous_batching": continuous, "prefill_tokens": 0,
                                "host": DecodeHost(gap_s=0, sequence_s=0, layer_s=0)})  # fmt: skip


def one_replica(sequences: int, *, tp: int = 1, pp: int = 1) -> Layout:
    """Stages of equal depth."""
    ranks = np.arange(pp * tp).reshape(1, pp, tp)
    return Layout(ranks=ranks, layers=(4 // pp,) * pp, local=(sequences,), micro=(sequences,), micro_batches=1)


def generate(problem: Problem, sequences: int, **cut: int) -> TaskPrice:
    return task_price(problem, "rollout", one_replica(sequences, **cut))


def test_lengths_have_the_right_mean_and_never_pass_the_maximum() -> None:
    """∫ S = mean, over the kernel's own nodes."""
    for mean in (250, 999, 1000):
        tokens, weights = node_lengths(1000)
        response = Lengths(mean=mean, max=1000)
        assert (weights * survival_at(tokens, response)).sum() == pytest.approx(mean, rel=2e-3)
        assert survival_at(np.array([1000.0, 2000.0]), response).tolist() == [0, 0]
        assert weights.sum() == pytest.approx(1000) and tokens.max() < 1000


def test_quantiles_take_the_place_of_the_assumed_shape() -> None:
    """A quarter no longer than 100, nine tenths no longer than 400, none longer than 1000; linear between."""
    response = Lengths(mean=280, max=1000, quantiles={0.25: 100, 0.9: 400})
    lengths, shares = np.array([0.0, 50, 100, 250, 400, 700, 1000]), [1, 0.875, 0.75, 0.425, 0.1, 0.05, 0]
    assert survival_at(lengths, response) == pytest.approx(shares)
    assert [survival(t, response) for t in lengths] == pytest.approx(shares)


def test_the_longest_of_many_against_sampling() -> None:
    """Inverse of the survival: length = max·(1 − U^(1/k)). The kernel: what a static batch of 32 costs beyond prefill is its steps."""
    rng = np.random.default_rng(0)
    longest = (1000 * (1 - rng.random((20_000, 32)) ** (1 / 3))).max(axis=1).mean()
    response = Lengths(mean=250, max=1000)
    assert expected_longest(response, 32) == pytest.approx(longest, rel=0.01)
    assert expected_longest(response, 1) == pytest.approx(250, rel=1e-3)
    assert expected_longest(Lengths(mean=1000, max=1000), 5) == pytest.approx(1000)
    price = generate(server(in_flight=32, continuous=False, mean=250, maximum=1000), 32)
    step = (WEIGHTS + 32 * (PROMPT + longest / 2) * KV) / 1e6
    assert price.terms["decode"] == pytest.approx(longest * step, rel=0.02)


def test_age_while_the_server_is_full_against_the_moments() -> None:
    """E[l²]/(2E[l]) with E[l²] = 2·max²/((k+1)(k+2)): 1000/5 for k = 3; half the length when all are equal. With quantiles by their own
    moments: uniform on 0 … 1000 has E[l²]/(2E[l]) = 1000²/3/1000.
    """
    assert mean_age(Lengths(mean=250, max=1000)) == pytest.approx(200)
    assert mean_age(Lengths(mean=1000, max=1000)) == 500
    assert mean_age(Lengths(mean=500, max=1000, quantiles={0.5: 500})) == pytest.approx(1000 / 3)


def test_memory_bound_decoding_reads_weights_and_cache_at_every_step() -> None:
    """Static batch of 4, ten steps at a mean context of 25 tokens; prefill reads the weights once a batch."""
    step, problem = (WEIGHTS + 4 * 25 * KV) / 1e6, server(in_flight=4, continuous=False)
    batch = 10 * step + (WEIGHTS + 4 * PROMPT * MOVED) / 1e6
    assert generate(problem, 4).time_s == pytest.approx(batch)
    assert generate(problem, 8).time_s == pytest.approx(2 * batch)


def test_compute_bound_decoding_costs_its_flops() -> None:
    """2·576·4 + 2·8·128 FLOPs a token and 4·L·a·e a token of context; prefill 20 tokens of 4 prompts and one head each."""
    token = 2 * 576 * 4 + 2 * 8 * 128 + 25 * 4 * 4 * 8
    prefill = 4 * (2 * 576 * 80 + 4 * 2 * 8 * 400) + 4 * 2 * 8 * 128
    assert generate(server(in_flight=4, continuous=False, **COMPUTE_BOUND), 4).time_s == pytest.approx((10 * 4 * token + prefill) / 1e6)


def test_tensor_parallel_decoding_pays_two_all_reduces_at_every_layer_and_step() -> None:
    """Ten steps of 4 tokens and one prefill of 80, 4 layers, two all-reduces of 2·(α + bytes/(2β)) on 16 bytes a token; α 5 µs inside."""
    problem = server(in_flight=4, continuous=False, devices=2, inside=1e6)
    price = generate(problem, 4, tp=2)
    once, prefill = (4 * 2 * 2 * (5e-6 + tokens * 16 / 2 / 1e6) for tokens in (4, 80))
    assert price.terms["tp"] == pytest.approx(10 * once)
    moved = 4 * (10 * 8 + (3 * 16 + 2 * (8 + 4)) / 2) * 2
    assert price.terms["prefill"] == pytest.approx((WEIGHTS / 2 + 80 * moved) / 1e6 + prefill)
    assert price.terms["decode"] == pytest.approx(10 * (WEIGHTS + 4 * 25 * KV) / 2 / 1e6)


def test_stages_keep_as_many_groups_in_flight() -> None:
    """Two stages, two groups of 2 sequences: the slower stage (the second, with the head) serves both at every step; nothing is sent from it.

    Prefill: 80 tokens pass both stages once, computing nothing, reading all weights; 80·16 bytes hop.
    """
    price = generate(server(in_flight=4, continuous=False, devices=2, inside=1e6), 4, pp=2)
    slower = (2 * 592 * 2 + 128 * 8 * 2 + 2 * 25 * KV / 2) / 1e6
    assert price.terms["decode"] == pytest.approx(10 * 2 * slower)
    assert price.terms["prefill"] == pytest.approx((WEIGHTS + 80 * MOVED) / 1e6 + 5e-6 + 80 * 16 / 1e6)
    assert set(price.terms) == {"decode", "prefill"}


def test_one_sequence_passes_stage_after_stage() -> None:
    """With nothing else under way the way through both stages is what a step takes: all weights, the sequence's cache, one hop."""
    price = generate(server(in_flight=1, continuous=False, devices=2, inside=1e6), 1, pp=2)
    assert price.terms["decode"] == pytest.approx(10 * (WEIGHTS + 25 * KV) / 1e6)
    assert price.terms["pp"] == pytest.approx(10 * (5e-6 + 16 / 1e6))


def test_replicas_that_hop_over_one_link_share_it() -> None:
    """Two replicas of two stages, both from m0 to m1; each hop has half the bandwidth. One sequence each: ten steps, α + 16/(β/2)."""
    work = job(small_model(), prompt=(PROMPT, PROMPT), response=(10, 10), engine=Engine(rollout="vllm"))
    kind = Kind("server", memory=2**33, vendor="cpu", inside=1e9, **MEMORY_BOUND)
    problem = build_problem(work, topology([(kind, 2), (kind, 2)], lan=(1e-3, 1e4)))
    alone = task_price(problem, "rollout", layout([[[0], [2]]], (2, 2), (1,)))
    both = task_price(problem, "rollout", layout([[[0], [2]], [[1], [3]]], (2, 2), (1, 1)))
    assert alone.terms["pp"] == pytest.approx(10 * (1e-3 + 16 / 1e4))
    assert both.terms["pp"] == pytest.approx(10 * (1e-3 + 2 * 16 / 1e4))


def played(n: int, c: int, draw: np.ndarray) -> float:
    """Continuous batching played step by step with lengths as drawn, memory-bound, prompts of 20 tokens; without prefill."""
    waiting = np.ceil(draw).astype(int).tolist()
    running: list[list[int]] = []
    seconds = 0.0
    while waiting or running:
        while waiting and len(running) < c:
            running.append([0, waiting.pop()])
        seconds += (WEIGHTS + sum(PROMPT + age for age, _ in running) * KV) / 1e6
        running = [[age + 1, length] for age, length in running if age + 1 < length]
    return seconds


@pytest.mark.parametrize(("n", "c", "mean", "maximum"), [(64, 64, 50, 200), (64, 8, 50, 200), (200, 16, 40, 400), (48, 16, 100, 100), (12, 12, 100, 600)])
def test_continuous_batching_with_its_tail_against_playing_it(n: int, c: int, mean: float, maximum: int) -> None:
    rng, k = np.random.default_rng(0), maximum / mean - 1
    draws = [maximum * (1 - rng.random(n) ** (1 / k)) if k else np.full(n, maximum) for _ in range(80)]
    price = generate(server(in_flight=c, mean=mean, maximum=maximum), n)
    assert price.time_s - price.terms["prefill"] == pytest.approx(np.mean([played(n, c, d) for d in draws]), rel=0.05)


@pytest.mark.parametrize(("n", "c"), [(64, 64), (64, 8), (200, 16)])
def test_continuous_batching_with_measured_quantiles_against_playing_it(n: int, c: int) -> None:
    """Half the responses no longer than 20 tokens, a tenth longer than 100, up to 300. Mean of the pieces: 0.5·10 + 0.4·60 + 0.1·200."""
    rng, mean = np.random.default_rng(0), 0.5 * 10 + 0.4 * 60 + 0.1 * 200
    draws = [np.interp(rng.random(n), [0, 0.5, 0.9, 1], [0, 20, 100, 300]) for _ in range(80)]
    price = generate(server(in_flight=c, mean=mean, maximum=300, quantiles={0.5: 20, 0.9: 100}), n)
    assert price.time_s - price.terms["prefill"] == pytest.approx(np.mean([played(n, c, d) for d in draws]), rel=0.05)


def test_equal_lengths_have_no_tail_and_a_long_maximum_has() -> None:
    """Prompts of one token, so that the cache hardly counts."""
    even, long = (generate(server(in_flight=4, mean=10, maximum=m, prompt=1), 4) for m in (10, 100))
    assert even.terms.get("tail", 0.0) == pytest.approx(0, abs=1e-3 * even.time_s)
    assert long.terms["tail"] > 0.3 * long.terms["decode"]


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 64), st.floats(1, 100))
def test_more_room_and_more_speed_never_hurt(n: int, c: int, factor: float) -> None:
    tight, roomy = (generate(server(in_flight=count, maximum=30), n).time_s for count in (c, c + 8))
    assert roomy <= tight * (1 + 1e-9)
    slow, fast = (generate(server(in_flight=c, hbm=1e6 * by), n).time_s for by in (1, factor))
    assert fast <= slow * (1 + 1e-9)


def test_a_faster_replica_takes_more_of_the_batch_and_all_end_together() -> None:
    problem = build_problem(job("tiny-qwen3", prompts=32), topology([(CPU, 1), (SLOW_CPU, 1)]))
    problem = replace(problem, engine=problem.engine.model_copy(update={"host_flops_per_s": 0.0}))  # the host's time does not depend on the share
    dealt, even = (group_price(problem, rollout=replace(layout([[[0]], [[1]]], (4,), (64, 64)), local=local)) for local in ((), (64, 64)))
    first, second = dealt.layouts["rollout"].local
    assert first > 2 * second and first + second == 128
    assert dealt.rollout_s < 0.75 * even.rollout_s


def test_the_cache_bounds_the_sequences_in_flight() -> None:
    """Room for so many sequences of 2048 tokens beside the weights and what an engine needs."""
    per_sequence, params = 147456 * 2048, 8_190_735_360

    def price(sequences: float) -> tuple[tuple[int, ...], float, float]:
        """(sequences in flight, seconds, bytes lacking)."""
        memory = round((2 * params + 1_000_000 + sequences * per_sequence + 1000) / 0.9)
        problem = build_problem(big_job(engine=Engine(rollout="vllm")), topology([(Kind("gpu", 1e14, 1e12, memory), 1)]))
        problem = with_engine(problem, memory={"per_rank_bytes": 500_000, "generation_bytes": 500_000})
        group = group_price(problem, rollout=layout([[[0]]], (36,), (64,)))
        return group.layouts["rollout"].micro, group.rollout_s, group.overflow * 0.9 * memory

    roomy, tight, none = price(64), price(4), price(0.5)
    assert [found[0] for found in (roomy, tight, none)] == [(64,), (4,), (1,)]
    assert tight[1] > roomy[1]
    assert roomy[2] == tight[2] == 0
    assert none[2] == pytest.approx(0.5 * per_sequence, rel=0.01)


def test_room_counts_down_to_four_binary_digits() -> None:
    """So that replicas of nearly equal room are of one kind: 37 sequences are run as 36, 300 as 288, 15 as 15."""
    for cap, admitted in ((15, 15), (37, 36), (300, 288)):
        group = group_price(server(in_flight=cap), rollout=one_replica(400))
        assert group.layouts["rollout"].micro == (admitted,)
