"""The roofline of the ideal cluster: every task's FLOPs and bytes spread perfectly over all devices it may use, nothing communicated."""

from __future__ import annotations

import numpy as np

from stages.schedule.cost.compute import head_forward_flops, layer_forward_flops, training_multiplier
from stages.schedule.problem import ACTOR_LOG_PROB, Problem, Task


def roofline_s(problem: Problem) -> float:
    """Seconds no plan can beat under this cost model, calibration included. Tasks of one phase share all devices."""
    rollout = _rollout_s(problem)
    inference: dict[str, float] = {t.name: _forward_flops(problem, t) for t in problem.tasks if t.name.endswith("_inference")}
    inference[ACTOR_LOG_PROB] = _forward_flops(problem, problem.task("actor_training"))
    training: dict[str, float] = {t.name: _training_flops(problem, t) for t in problem.tasks if t.training}
    rest = _phase_s(problem, inference) + _phase_s(problem, training)
    alone = max(rollout, rest) if problem.job.mode == "async" else rollout + rest
    return alone + problem.overhead_s


def _phase_s(problem: Problem, flops: dict[str, float]) -> float:
    """All FLOPs of a phase over all devices its tasks may use, each at the best point of its curve and its best-calibrated task."""
    best = np.array([curve.best for curve in problem.fleet.curves])[problem.fleet.device_class]
    rates = [np.where(problem.allowed.get(t, problem.allowed["actor_training"]), best / problem.factors(t), 0.0) for t in flops]
    return sum(flops.values()) / max(float(np.max(rates, axis=0).sum()), 1e-30)


def _forward_flops(problem: Problem, task: Task) -> float:
    work = problem.work
    layer = layer_forward_flops(task.model, sequences=work.sequences, tokens_each=work.sequence_tokens, tp=1)
    return task.model.layers * layer + _head_flops(problem, task)


def _head_flops(problem: Problem, task: Task) -> float:
    work = problem.work
    return head_forward_flops(task.model, sequences=work.sequences, tokens_each=work.sequence_tokens, tp=1, value_head=task.value_head)


def _training_flops(problem: Problem, task: Task) -> float:
    head = _head_flops(problem, task)
    layers = _forward_flops(problem, task) - head
    return problem.work.epochs * (training_multiplier(problem.job.engine.recompute) * layers + 3 * head)


def _rollout_s(problem: Problem) -> float:
    """Prefill and decode compute; or the KV cache read by every token and the weights read once a token of the mean response."""
    work, model = problem.work, problem.task("rollout").model
    prefill = model.layers * (
        model.layer_matmul_flops(work.sequences * work.prompt_mean) + work.sequences * model.layer_attention_flops(work.prompt_mean)
    )
    tokens = work.sequences * work.response_mean
    decode = tokens * (
        model.layers * (model.layer_matmul_flops(1) + 4.0 * model.heads * model.head_dim * work.prompt_mean) + model.head_flops(1)
    )
    best = np.array([curve.best for curve in problem.fleet.curves])[problem.fleet.device_class]
    usable, factors = problem.allowed["rollout"], problem.factors("rollout")
    speed, hbm = float((best / factors)[usable].sum()), float((problem.fleet.hbm_bytes_per_s / factors)[usable].sum())
    weights = (model.layers * model.layer_params() + model.embedding_params()) * problem.element_bytes
    read = work.response_mean * weights + tokens * work.prompt_mean * model.layers * model.kv_bytes_per_token_layer(problem.element_bytes)
    return prefill / max(speed, 1e-30) + max(decode / max(speed, 1e-30), read / max(hbm, 1e-30))
