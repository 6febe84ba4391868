"""What the ranks of a task hold of its model: pieces, shards, bytes; and which ranks are the same in two plans."""

from __future__ import annotations

from collections.abc import Iterator

from artifacts.job import TRAINING_TASKS, Job, TaskName
from artifacts.model_spec import ModelSpec, adam_state_bytes_per_param
from artifacts.plan import Plan, Strategy

Tasklet = tuple[str, int, int, int, int, str]
"""(task, pp, tp, stage, shard, device). Replicas are interchangeable, so a rank's replica says nothing about what its device holds."""


def pieces(layers: list[int], stage: int, model: ModelSpec, *, value_head: bool) -> Iterator[tuple[str, int]]:
    """(name, parameters before sharding) of what a stage holds: its layers, and what stands at the ends."""
    start = sum(layers[:stage])
    for layer in range(start, start + layers[stage]):
        yield f"layer {layer}", model.layer_params()
    first, last = stage == 0, stage == len(layers) - 1
    if first:
        yield "embedding", model.stage_params(layers=0, first=True, last=False, value_head=value_head)
    if last:
        both = model.stage_params(layers=0, first=first, last=True, value_head=value_head)
        yield "head", both - (model.stage_params(layers=0, first=True, last=False, value_head=value_head) if first else 0)


def shard_slice(shard: int, tp: int) -> tuple[float, float]:
    """The part of every weight that a shard holds, as an interval of [0, 1]."""
    return shard / tp, (shard + 1) / tp


def bytes_per_param(job: Job, task: TaskName) -> tuple[int, int]:
    """(weight, optimizer state) bytes a parameter of the task holds; no state where it is not trained.

    Shards as they are cut: a state that is spread over replicas is counted as held by each.
    """
    element = 4 if job.precision == "fp32" else 2
    return element, adam_state_bytes_per_param(element) if task in TRAINING_TASKS else 0


def tasklets(plan: Plan) -> set[Tasklet]:
    """Every rank of every task, by what it is and where."""
    return {tasklet for task, strategy in plan.tasks.items() for tasklet in _of(task, strategy)}


def tasklets_moved(before: Plan, after: Plan) -> int:
    """Tasklets of the new plan whose device did not hold that stage and shard of the task, cut as deep and as wide, under the old one."""
    return len(tasklets(after) - tasklets(before))


def task_tasklets_moved(task: str, before: Strategy, after: Strategy) -> int:
    """The same of one task."""
    return len(set(_of(task, after)) - set(_of(task, before)))


def _of(task: str, s: Strategy) -> Iterator[Tasklet]:
    for index, device in enumerate(s.ranks):
        yield task, s.pp, s.tp, index // s.tp % s.pp, index % s.tp, device
