"""From what verl measured in an iteration to a line of the throughput log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from artifacts.errors import HetrlError
from artifacts.plan import Plan
from artifacts.throughput import Iteration, Replica
from stages.train.engines.verl.ranks import replica_of

if TYPE_CHECKING:
    from stages.train.engines.verl.trainer import Step

TASK_OF_TIMER = {
    "gen": "rollout",
    "reward": "reward_inference",
    "old_log_prob": "actor_log_prob",
    "ref": "reference_inference",
    "values": "critic_inference",
    "update_critic": "critic_training",
    "update_actor": "actor_training",
    "update_weights": "weight_update",
    "save_checkpoint": "checkpoint",
}
"""verl's timers of one step (``timing_s/…``) → our tasks. ``gen`` spans rollout and the rule reward; where these overlap it is rollout.
``reward`` is a reward model's."""

METRIC = {
    "loss": ("actor/loss", "actor/actor/pg_loss", "actor/pg_loss"),
    "grad_norm": ("actor/grad_norm",),
    "entropy": ("actor/entropy",),
    "kl": ("actor/kl_loss", "actor/ppo_kl", "actor/actor/ppo_kl"),
    "reward_mean": ("critic/score/mean", "critic/rewards/mean"),
    "response_tokens_mean": ("response_length/mean",),
    "staleness": ("training/off_policy/trajectory_staleness/mean",),
}
"""Our figure → verl's metric, first found."""


def iteration(step: Step, plan: Plan) -> Iteration:
    """One line. ``by_task_s`` sums to ``time_s``; what no timer covers is ``other``.

    Where the rollout runs beside the training, ``rollout`` is what its busiest replica did meanwhile and counts towards no sum; the
    time that was waited for it is ``rollout_wait``.

    Raises:
        HetrlError: loss or gradient norm is not a number.
    """
    total = step.seconds["step"]
    by_task = {task: step.seconds[timer] for timer, task in TASK_OF_TIMER.items() if timer in step.seconds}
    if step.overlapped:
        by_task["rollout_wait"] = by_task.pop("rollout")
        by_task["other"] = max(0.0, total - sum(by_task.values()))
        by_task["rollout"] = max(work["seconds"] for work in step.rollout_work)
    else:
        both, busy = by_task["rollout"], max((work["seconds"] for work in step.rollout_work), default=0.0)
        by_task["rollout"] = min(both, max(both - step.score_seconds, busy))
        if "reward_inference" not in plan.tasks:
            by_task["reward"] = both - by_task["rollout"]
        by_task["other"] = max(0.0, total - sum(by_task.values()))
    figures: dict[str, Any] = {name: _first(step.metrics, keys) for name, keys in METRIC.items()}
    for name in ("loss", "grad_norm"):
        value = figures[name]
        if value is not None and not math.isfinite(value):
            raise HetrlError(f"iteration {step.number}: {name} is {value}, the training has diverged",
                             fix="lower optimizer.learning_rate; the log up to here is kept", details={"iteration": step.number})
    return Iteration(
        step=step.number,
        time_s=total,
        by_task_s=by_task,
        sequences=len(step.sequence_tokens),
        tokens=sum(step.sequence_tokens),
        replicas=_replicas(step, plan),
        memory_peak_bytes=_memory(step.metrics),
    ).model_copy(update={name: value for name, value in figures.items() if value is not None and math.isfinite(value)})


def sampled_difference(step: Step) -> float:
    """How far the rollout's log-probabilities are from the actor's own, a token: rounding, and in asynchronous runs staleness. A large
    figure in a synchronous run means that the rollout samples from other weights."""
    return _first(step.metrics, ("rollout_corr/log_ppl_abs_diff",)) or 0.0


def _first(metrics: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    return next((float(metrics[key]) for key in keys if key in metrics), None)


def _memory(metrics: dict[str, Any]) -> int | None:
    peaks = [float(v) for k, v in metrics.items() if k.endswith("perf/max_memory_allocated_gb")]
    return int(max(peaks) * 2**30) if peaks else None


def _replicas(step: Step, plan: Plan) -> dict[str, list[Replica]]:
    """What each replica did: a replica's ranks see the same sequences, its time is that of its slowest rank."""
    found: dict[str, list[Replica]] = {}
    for task, strategy in plan.tasks.items():
        work = step.critic_work if task.startswith("critic") else step.actor_work
        if task == "reference_inference":
            work = step.reference_work or work
        elif task == "reward_inference":
            work = step.reward_work
        by_replica: list[list[dict[str, float]]] = [[] for _ in range(strategy.dp)]
        for rank, done in enumerate(work):
            if task in done:
                by_replica[replica_of(strategy, rank)].append(done[task])
        if all(by_replica):
            found[task] = [_slowest(ranks) for ranks in by_replica]
    if step.rollout_work:
        found["rollout"] = [_slowest([work]) for work in step.rollout_work]
    return found


def _slowest(ranks: list[dict[str, float]]) -> Replica:
    return Replica(sequences=int(ranks[0]["sequences"]), tokens=int(ranks[0]["tokens"]), time_s=max(r["seconds"] for r in ranks))
