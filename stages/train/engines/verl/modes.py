"""How rollout and training follow each other, in verl's own words."""

from __future__ import annotations

from typing import Literal

from artifacts.job import Job
from artifacts.plan import Plan

Mode = Literal["sync", "separate_async", "colocate_async"]


def mode_of(job: Job, plan: Plan) -> Mode:
    """verl's ``trainer.v1.trainer_mode``: asynchronous rollout on devices of its own, or taking turns with the actor on the actor's."""
    if job.mode == "sync":
        return "sync"
    return "separate_async" if rollout_apart(plan) else "colocate_async"


def rollout_apart(plan: Plan) -> bool:
    """Whether the rollout has a group of its own."""
    return plan.group_of("rollout").name != plan.group_of("actor_training").name


def parts(job: Job, mode: Mode) -> int:
    """Parts of an iteration that verl samples and trains one after the other: mini-batches when rollout runs beside, else the whole."""
    return job.batch.sequences // job.batch.mini_batch_sequences if mode == "separate_async" else 1
