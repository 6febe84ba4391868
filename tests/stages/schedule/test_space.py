"""What the engine's rules leave of the space, level by level."""

from __future__ import annotations

from artifacts.job import Constraints, Engine
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.space import bundles, cuts, groupings, legal_tps, rollout_tps, size_vectors
from tests.stages.schedule.builders import A100, CPU, L4, big_job, job, topology


def gpus(count: int = 8, **fields: object) -> Problem:
    return build_problem(big_job(**fields), topology([(A100, count)]))  # type: ignore[arg-type]


def test_the_cpu_engine_keeps_actor_reference_and_rollout_together() -> None:
    grpo = build_problem(job("tiny-qwen3"), topology([(CPU, 2)]))
    ppo = build_problem(job("tiny-qwen3", algorithm="ppo"), topology([(CPU, 2)]))
    assert groupings(grpo) == [(("rollout", "reference_inference", "actor_training"),)]
    assert bundles(ppo) == [("rollout", "reference_inference", "actor_training"), ("critic_inference", "critic_training")]
    assert len(groupings(ppo)) == 2


def test_groupings_on_gpus_are_the_partitions_in_which_rollout_is_alone_or_with_the_actor() -> None:
    """GRPO: {rollout}, {reference}, {actor}: 5 partitions, of which rollout with the reference only is not one. PPO: four bundles, 15
    partitions; rollout without the actor but with company: with reference, critic or both, the actor elsewhere: 5 of them."""
    assert len(groupings(gpus(algorithm="grpo"))) == 5 - 1
    assert len(groupings(gpus(algorithm="ppo"))) == 15 - 5


def test_asynchronous_rollout_is_alone() -> None:
    assert all(("rollout",) in grouping for grouping in groupings(gpus(algorithm="ppo", mode="async")))
    assert len(groupings(gpus(algorithm="ppo", mode="async"))) == 5


def test_qwen2_5_7b_may_be_cut_in_one_two_or_four() -> None:
    """Case: 28 query heads and 4 KV heads."""
    problem = gpus(model="Qwen2.5-7B", algorithm="grpo")
    assert legal_tps(problem, ("actor_training",), 8) == [1, 2, 4]
    assert rollout_tps(problem, 8) == [1, 2, 4]
    used = {(c.dp * c.pp * c.tp, c.tp) for c in cuts(problem, ("actor_training",), tuple(range(8)), thorough=False)}
    assert {(8, 1), (8, 2), (8, 4)} <= used


def test_replicas_divide_the_batch() -> None:
    """Case: 32 prompts × 8 responses on three equal nodes: never three replicas."""
    problem = build_problem(job("tiny-qwen3", prompts=32, responses=8), topology([(CPU, 1)] * 3))
    found = cuts(problem, ("rollout", "reference_inference", "actor_training"), (0, 1, 2), thorough=True)
    assert found and all(256 % c.dp == 0 for c in found)
    assert {(c.dp, c.pp, c.tp) for c in found} >= {(2, 1, 1), (1, 3, 1), (1, 1, 2)}


def test_fixed_degrees_are_the_only_ones_tried() -> None:
    constraints = Constraints(fix={"actor_training": {"pp": 2, "tp": 2}})
    problem = gpus(algorithm="grpo", constraints=constraints)
    found = cuts(problem, ("reference_inference", "actor_training"), tuple(range(8)), thorough=True)
    assert {(c.dp, c.pp, c.tp) for c in found} == {(2, 2, 2), (1, 2, 2)}


def test_size_vectors_sum_to_at_most_the_devices_and_stay_few() -> None:
    problem = build_problem(big_job(), topology([(A100, 8)] * 4 + [(L4, 8)] * 4))
    five = max(groupings(problem), key=len)
    assert len(five) == 4
    vectors = size_vectors(problem, five, most=50)
    assert len(vectors) == 50 and all(min(v) >= 1 and sum(v) <= 64 for v in vectors)
    small = build_problem(job("tiny-qwen3"), topology([(CPU, 3)]))
    assert sorted(size_vectors(small, groupings(small)[0], most=50)) == [(1,), (2,), (3,)]


def test_the_engine_follows_the_devices() -> None:
    assert build_problem(job("tiny-qwen3"), topology([(CPU, 1)])).engine.rollout_server == "hf"
    assert build_problem(job("tiny-qwen3"), topology([(A100, 1)])).engine.rollout_server == "vllm"
    assert build_problem(job("tiny-qwen3", engine=Engine(rollout="vllm")), topology([(CPU, 1)])).engine.rollout_server == "vllm"
