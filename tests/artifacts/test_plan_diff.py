"""What moves between two plans, and how much of a model that is; checked against counting by hand."""

from __future__ import annotations

from artifacts.holdings import tasklets, tasklets_moved
from artifacts.job import Job
from artifacts.model_spec import ModelSpec
from artifacts.plan import Group, Plan, Strategy
from artifacts.plan_diff import PlanDiff, task_moves
from artifacts.units import show_seconds
from artifacts.views import plan_diff_markdown

MODEL = ModelSpec(name="toy", layers=4, hidden=8, heads=2, kv_heads=2, head_dim=4, intermediate=16, vocab=10, tied_embeddings=False)
JOB = Job.model_validate({"name": "toy", "models": {"actor": MODEL.model_dump()}, "batch": {"prompts": 4, "responses_per_prompt": 2},
                          "prompt_tokens": {"mean": 4, "max": 4}, "response_tokens": {"mean": 4, "max": 4}})
LAYER, ENDS = MODEL.layer_params(), 10 * 8
TRAINED, HELD = 2 + 12, 2
"""Bytes a parameter: 16-bit weight, and Adam's two moments and master copy in 32 bits."""


def strategy(ranks: str, dp: int, pp: int, tp: int, layers: list[int]) -> Strategy:
    return Strategy(dp=dp, pp=pp, tp=tp, layers=layers, ranks=list(ranks), local_batch_sequences=[8 // dp] * dp, micro_batch_sequences=1)


def plan(actor: Strategy, others: Strategy, *, apart: bool = False) -> Plan:
    tasks = {"rollout": others, "reference_inference": others, "actor_training": actor}
    groups = [Group(name="all", tasks=list(tasks), devices=sorted({*actor.ranks, *others.ranks}))]
    if apart:
        groups = [Group(name="a", tasks=["actor_training"], devices=actor.ranks), Group(name="b", tasks=["rollout", "reference_inference"], devices=others.ranks)]
    return Plan(job="j", topology_fingerprint="f", groups=groups, tasks=tasks)


ONE = strategy("a", 1, 1, 1, [4])


def test_nothing_moves_between_a_plan_and_itself() -> None:
    assert task_moves(JOB, plan(ONE, ONE), plan(ONE, ONE)) == []


def test_a_device_that_takes_a_model_up_loads_all_of_it() -> None:
    [move] = task_moves(JOB, plan(ONE, ONE), plan(strategy("b", 1, 1, 1, [4]), ONE))
    assert (move.task, move.joined, move.left, move.reranked) == ("actor_training", ["b"], ["a"], [])
    assert move.load_bytes == MODEL.params() * TRAINED


def test_a_second_replica_loads_once_and_the_first_nothing() -> None:
    [move] = task_moves(JOB, plan(ONE, ONE), plan(strategy("ab", 2, 1, 1, [4]), ONE))
    assert (move.joined, move.left, move.load_bytes) == (["b"], [], MODEL.params() * TRAINED)


def test_a_device_keeps_the_layers_it_has() -> None:
    """a held stage 0 of 3 layers and the embedding, b the last layer, the norm and the head; then two and two."""
    before, after = strategy("ab", 1, 2, 1, [3, 1]), strategy("ab", 1, 2, 1, [2, 2])
    [move] = task_moves(JOB, plan(before, ONE), plan(after, ONE))
    assert (move.joined, move.left, move.reranked) == ([], [], [])
    assert move.load_bytes == LAYER * TRAINED, "the third layer, on b"


def test_stages_that_change_places_load_each_others() -> None:
    before, after = strategy("ab", 1, 2, 1, [2, 2]), strategy("ba", 1, 2, 1, [2, 2])
    [move] = task_moves(JOB, plan(before, ONE), plan(after, ONE))
    assert move.reranked == ["a", "b"] and move.load_bytes == MODEL.params() * TRAINED


def test_shards_keep_the_part_that_they_have() -> None:
    """From one device to two shards: a has its half already, b loads the other. Back: a loads the half it lacks."""
    two = strategy("ab", 1, 1, 2, [4])
    [apart] = task_moves(JOB, plan(ONE, ONE), plan(two, ONE))
    [together] = task_moves(JOB, plan(two, ONE), plan(ONE, ONE))
    assert apart.load_bytes == together.load_bytes == MODEL.params() * TRAINED / 2


def test_what_is_not_trained_has_no_optimizer_state() -> None:
    moves = task_moves(JOB, plan(ONE, ONE), plan(ONE, strategy("b", 1, 1, 1, [4])))
    assert {m.task: m.load_bytes for m in moves} == dict.fromkeys(("rollout", "reference_inference"), MODEL.params() * HELD)


def test_a_tasklet_moves_where_its_device_did_not_hold_its_stage_and_shard() -> None:
    four = strategy("abcd", 2, 2, 1, [2, 2])
    assert tasklets_moved(plan(four, ONE), plan(four, ONE)) == 0 and len(tasklets(plan(four, ONE))) == 4 + 1 + 1
    swapped, other = strategy("cdab", 2, 2, 1, [2, 2]), strategy("badc", 2, 2, 1, [2, 2])
    assert tasklets_moved(plan(four, ONE), plan(swapped, ONE)) == 0, "replicas are interchangeable"
    assert tasklets_moved(plan(four, ONE), plan(other, ONE)) == 4, "every stage is elsewhere"
    assert tasklets_moved(plan(four, ONE), plan(strategy("abcd", 2, 2, 1, [3, 1]), ONE)) == 0, "a layer moves, no rank does"
    assert tasklets_moved(plan(four, ONE), plan(strategy("abcd", 4, 1, 1, [4]), ONE)) == 4, "cut otherwise: other ranks"
    [move] = task_moves(JOB, plan(four, ONE), plan(strategy("abed", 2, 2, 1, [2, 2]), ONE))
    assert (move.tasklets_moved, move.joined) == (1, ["e"])
    page = plan_diff_markdown(diff(moves=[move], tasklets=6))
    assert "1 of 6 tasklets moved" in page and "1 of 4" in page


def diff(**fields: object) -> PlanDiff:
    return PlanDiff.model_validate({"before": "schedule@a", "after": "schedule@b", "before_s": 4, "after_s": 6, **fields})


def test_when_it_has_paid_for_itself() -> None:
    assert diff(stays_s=10, restart_s=41).pays_after_iterations == 11 and diff(stays_s=10).gain == 0.4
    assert diff(stays_s=10).pays_after_iterations is None and diff(restart_s=9).pays_after_iterations is None
    assert diff(stays_s=6, restart_s=1).pays_after_iterations is None and diff().gain is None


def test_the_page_says_all_of_it_and_no_name_can_break_it() -> None:
    moves = task_moves(JOB, plan(ONE, ONE), plan(strategy("b", 1, 1, 1, [4]), ONE))
    page = plan_diff_markdown(diff(moves=moves, stays_s=10, restart_s=41, causes=["link <b>x</b> | is `slow`"], gone=["a"]))
    assert page.startswith("# A new plan is 40 % faster than the old one would be now")
    for part in ("paid for itself after 11 iterations", f"about {show_seconds(41)}, as last measured", "Not there any more: a.", "| actor training |"):
        assert part in page, part
    assert "<b>" not in page and "\\| is \\`slow\\`" in page
    assert "nothing moves" in plan_diff_markdown(diff()) and "Nothing: every rank stays" in plan_diff_markdown(diff())
