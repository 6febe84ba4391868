"""The published model against values worked out by hand from its equations (not from the code)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from artifacts.job import Engine
from stages.schedule.cost.iteration import GroupPrice, price_layouts
from stages.schedule.cost.paper import best_ring, dp_bytes, layer_flops, paper_price, phi, task_terms, tp_bytes
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem, build_problem
from tests.stages.schedule.builders import Kind, job, small_model, topology

FAST = Kind("fast", 1e6, 1e6, 2**40, inside=1e9)
SLOW = Kind("slow", 5e5, 2e6, 2**40, inside=1e9)
LAN = (1e-3, 1e5)
# small model: h 8, f 16, L 4; prompts and responses of at most 4 tokens: S = 8.
# layer FLOPs of a sequence: 8·8·64 + 4·64·8 + 6·8·8·16 = 4096 + 2048 + 6144 = 12288; weights of a layer: 4·64 + 3·8·16 = 640
LAYER = 12288.0
PREFILL = 8 * 4 * 64 + 4 * 16 * 8 + 6 * 4 * 8 * 16  # 2048 + 512 + 3072 = 5632


def problem(kinds: Sequence[tuple[Kind, int]], *, algorithm: str = "grpo", mode: str = "sync") -> Problem:
    work = job(small_model(), algorithm=algorithm, mode=mode, prompts=4, responses=2, mini=2, micro=1, prompt=(2, 4), response=(3, 4),
               engine=Engine(rollout="vllm"))  # type: ignore[arg-type]
    return build_problem(work, topology(kinds, lan=LAN))


def layout(ranks: list[list[list[int]]], layers: tuple[int, ...], local: tuple[int, ...], micro: tuple[int, ...], count: int = 1) -> Layout:
    return Layout(ranks=np.array(ranks), layers=layers, local=local, micro=micro, micro_batches=count)


def test_the_terms_of_the_text() -> None:
    assert tp_bytes(w=2, mbs=3, tokens=8, h=8, tp=4) == 2 * 3 * 8 * 8 * 2 * 3 / 4 == 576
    assert dp_bytes(w=2, layers=4, h=8, f=16, dp=2, tp=1) == 2 * 4 * 640 * 2 * 1 / 2 == 5120
    assert layer_flops(tokens=8, h=8, f=16) == LAYER
    assert phi([3.0, 2.0, 1.0]) == 3.0  # groups of their own: η = 1
    assert phi([3.0 + 2.0 + 1.0]) == 6.0  # one group: η = 0


def test_inference_on_two_stages() -> None:
    """nm = 8 micro-batches of one sequence; stage 0 has 3 layers, sends 2·1·8·8 = 128 bytes 8 times; stage 1 computes half as fast."""
    p = problem([(FAST, 1), (SLOW, 1)])
    price = task_terms(p, "reference_inference", layout([[[0], [1]]], (3, 1), (8,), (1,), 8))
    first = 8 * 3 * LAYER / 1e6 + 8 * (1e-3 + 128 / 1e5)
    last = 8 * 1 * LAYER / 5e5
    assert first > last
    assert price.terms == pytest.approx({"compute": 8 * 3 * LAYER / 1e6, "pp": 8 * (1e-3 + 128 / 1e5)})


def test_training_has_three_times_the_compute_six_reduces_two_hops_and_a_bubble() -> None:
    """Stages of two shards on machines of their own. Ring inside a machine: 5 µs + 2·8·8·2·(1/2)/1e9 a step."""
    p = problem([(FAST, 2), (FAST, 2)])
    price = task_terms(p, "actor_training", layout([[[0, 1], [2, 3]]], (2, 2), (8,), (1,), 4))
    compute = 3 * 8 * 2 * LAYER / (1e6 * 2)
    ring = 6 * 8 * 2 * (5e-6 + 128 * 2 * 0.5 / 1e9)
    hop = 2 * 8 * (1e-3 + 128 / 1e5)
    assert price.terms["compute"] == pytest.approx(compute)
    assert price.terms["tp"] == pytest.approx(ring)
    assert price.terms["pp"] == pytest.approx(hop)
    assert price.terms["bubble"] == pytest.approx((compute + ring) / 8)
    assert price.time_s == pytest.approx(compute + ring + hop + (compute + ring) / 8)


def test_gradients_are_reduced_once_an_iteration_over_the_best_ring() -> None:
    p = problem([(FAST, 1), (FAST, 1)])
    price = task_terms(p, "actor_training", layout([[[0]], [[1]]], (4,), (4, 4), (1, 1), 2))
    assert price.terms["dp"] == pytest.approx(1e-3 + 5120 / 1e5)
    assert price.terms["compute"] == pytest.approx(3 * 4 * 4 * LAYER / 1e6)


def test_generation_reads_the_weights_for_every_token_of_the_longest_response() -> None:
    """Prefill of 4 tokens; 4 tokens · nm 1 · mbs 4 · 2 bytes · 4 layers · 640 weights over (4 in flight · 1e6 B/s)."""
    p = problem([(FAST, 1), (SLOW, 1)])
    price = task_terms(p, "rollout", layout([[[0]], [[1]]], (4,), (4, 4), (4, 4)), in_flight=(4, 4))
    fast = 4 * 4 * PREFILL / 1e6 + 4 * 4 * 2 * 4 * 640 / (4 * 1e6)
    slow = 4 * 4 * PREFILL / 5e5 + 4 * 4 * 2 * 4 * 640 / (4 * 2e6)
    assert price.time_s == pytest.approx(max(fast, slow))


def priced(p: Problem, groups: list[dict[str, Layout]]) -> list[GroupPrice]:
    found = [price_layouts(p, tuple(g), g) for g in groups]
    assert all(g is not None for g in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize(("mode", "apart"), list(itertools.product(["sync", "async"], [True, False])))
def test_the_iteration(mode: str, apart: bool) -> None:
    """sync: rollout, then inference, then training; async: the rollout beside the rest; shared groups take turns."""
    p = problem([(FAST, 4)], algorithm="ppo", mode=mode)
    at = [0, 1, 2, 3]
    models = {n: layout([[[at[1]]]], (4,), (8,), (1,), 4) for n in ("reference_inference", "actor_training")}
    critic = {n: layout([[[at[2 if apart else 1]]]], (4,), (8,), (1,), 4) for n in ("critic_inference", "critic_training")}
    rollout = {"rollout": layout([[[at[0]]]], (4,), (8,), (8,))}
    groups = priced(p, [rollout, models, critic] if apart else [rollout, {**models, **critic}])
    found = paper_price(p, groups)
    forward = 8 * 4 * LAYER / 1e6
    sides = 1 if apart else 2
    rest = sides * forward + sides * 3 * forward
    generation = 8 * 4 * PREFILL / 1e6 + 4 * 8 * 2 * 4 * 640 / (8 * 1e6)
    assert found.tasks["rollout"].time_s == pytest.approx(generation)
    assert found.iteration_s == pytest.approx(max(generation, rest) if mode == "async" else generation + rest)


def test_the_best_ring_is_the_best_of_all_orders() -> None:
    """Three regions of unequal links, six devices: against every order."""
    where = ["a", "b", "c"]
    fleet = topology([(FAST, 2), (FAST, 2), (FAST, 2)], regions=where, lan=LAN, wan=(5e-3, 1e5))
    links = [k.model_copy(update={"latency_s": 0.5}) if {k.source, k.target} == {"m0", "m2"} else k for k in fleet.links]
    fleet = type(fleet).model_validate(fleet.model_dump() | {"links": [k.model_dump() for k in links], "fingerprint": ""})
    p = build_problem(job(small_model(), engine=Engine(rollout="vllm")), fleet)
    edge = p.fleet.latency_s + 100.0 * p.fleet.inverse_bandwidth
    for ranks in ([0, 1, 2, 3, 4, 5], [0, 2, 4], [0, 1, 4]):
        orders = ([ranks[0], *rest] for rest in itertools.permutations(ranks[1:]))
        truth = min(max(edge[a, b] for a, b in zip(o, [*o[1:], o[0]], strict=True)) for o in orders)
        assert best_ring(p, ranks, 100.0) == pytest.approx(truth)
