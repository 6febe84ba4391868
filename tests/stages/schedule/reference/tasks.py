"""How long one training or inference task takes on a layout: pipeline stages, their collectives, optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.compute import head_forward_flops, layer_forward_flops, training_multiplier
from tests.stages.schedule.reference.memory import held_params
from tests.stages.schedule.reference.network import all_reduce_s, gradient_sync_s, hop_s
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem, Task

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OPTIMIZER_BYTES_PER_PARAM = 30
"""Memory traffic of Adam's update: reads gradient, master copy, two moments (16); writes the last three and the 16-bit weight (14)."""


@dataclass(frozen=True, eq=False)
class StageRates:
    """Seconds of one micro-batch by replica and stage, ``[dp, pp]``: a layer's compute, its waiting for memory, its all-reduces; the output
    head (last stage); the hop to the next stage. Calibration is applied."""

    layer_compute: Floats
    layer_hbm: Floats
    layer_tp: Floats
    head: Floats
    hop: Floats

    @property
    def per_layer(self) -> Floats:
        return self.layer_compute + self.layer_hbm + self.layer_tp

    @property
    def fixed(self) -> Floats:
        return self.head + self.hop


@dataclass(frozen=True)
class TaskPrice:
    """Seconds of a task in one iteration, by term; the terms add up to the time."""

    terms: dict[str, float]

    @property
    def time_s(self) -> float:
        return sum(self.terms.values())


def stage_rates(
    problem: Problem, task: Task, *, ranks: Ints, micro: tuple[int, ...], training: bool, factor_of: str | None = None
) -> StageRates:
    """Price one micro-batch on every replica and stage. ``factor_of`` names the calibration factor (default: the task's own)."""
    model, tokens_each, w = task.model, problem.work.sequence_tokens, problem.element_bytes
    dp, pp, tp = ranks.shape
    recompute = problem.job.engine.recompute
    multiplier = training_multiplier(recompute) if training else 1.0
    factor = problem.factors(factor_of or task.name)[ranks].max(axis=2)
    hbm = problem.fleet.hbm_bytes_per_s[ranks].min(axis=2)

    rate, flops, head_flops = np.empty((dp, pp)), np.empty((dp, 1)), np.empty(dp)
    for size in set(micro):
        rows = [i for i, m in enumerate(micro) if m == size]
        rate[rows] = problem.rates(tokens=size * tokens_each, hidden=model.hidden, tp=tp)[ranks[rows]].min(axis=2)
        flops[rows] = layer_forward_flops(model, sequences=size, tokens_each=tokens_each, tp=tp)
        head_flops[rows] = head_forward_flops(model, sequences=size, tokens_each=tokens_each, tp=tp, value_head=task.value_head)
    compute = multiplier * flops / rate
    read = multiplier * model.layer_params() * w / tp / hbm
    head = np.zeros((dp, pp))
    head[:, -1] = (3.0 if training else 1.0) * head_flops / rate[:, -1]

    fleet = problem.fleet
    bytes_ = np.array(micro, dtype=float) * tokens_each * model.hidden * w
    passes = (3 if recompute == "full" else 2) if training else 1
    reduce = all_reduce_s(ranks, latency_s=fleet.latency_s, inverse_bandwidth=fleet.inverse_bandwidth, bytes_=bytes_[:, None])
    hop = np.zeros((dp, pp))
    if pp > 1:
        sent = hop_s(
            ranks[:, :-1], ranks[:, 1:], latency_s=fleet.latency_s, inverse_bandwidth=fleet.inverse_bandwidth, bytes_=bytes_[:, None] / tp
        )
        hop[:, :-1] = (2.0 if training else 1.0) * sent
    return StageRates(
        layer_compute=factor * compute,
        layer_hbm=factor * np.maximum(0.0, read - compute),
        layer_tp=factor * 2 * passes * reduce,
        head=factor * head,
        hop=factor * hop,
    )


def pipeline_time(stage_times: Floats, micro_batches: int) -> Floats:
    """1F1B with unequal stages, over the last axis: Σ_j t_j + (m − 1)·max_j t_j."""
    return stage_times.sum(axis=-1) + (micro_batches - 1) * stage_times.max(axis=-1)  # type: ignore[no-any-return]


def _pipeline_terms(rates: StageRates, layout: Layout, rounds: int) -> dict[str, float]:
    """Terms of the slowest replica over ``rounds`` mini-batches: its bottleneck stage's compute, hbm, tp, pp, and the bubble around it."""
    layers = np.array(layout.layers, dtype=float)
    stages = layers * rates.per_layer + rates.fixed
    replica = int(pipeline_time(stages, layout.micro_batches).argmax())
    stage = int(stages[replica].argmax())
    count = rounds * layout.micro_batches
    return {
        "compute": count * float(layers[stage] * rates.layer_compute[replica, stage] + rates.head[replica, stage]),
        "hbm": count * float(layers[stage] * rates.layer_hbm[replica, stage]),
        "tp": count * float(layers[stage] * rates.layer_tp[replica, stage]),
        "pp": count * float(rates.hop[replica, stage]),
        "bubble": rounds * float(stages[replica].sum() - stages[replica, stage]),
    }


def inference_price(problem: Problem, task: Task, layout: Layout, *, factor_of: str | None = None) -> TaskPrice:
    """A forward pass over the whole batch."""
    rates = stage_rates(problem, task, ranks=layout.ranks, micro=layout.micro, training=False, factor_of=factor_of)
    rounds = sum(layout.local) // (layout.micro_batches * sum(layout.micro))
    single = Layout(
        ranks=layout.ranks, layers=layout.layers, local=layout.local, micro=layout.micro, micro_batches=layout.micro_batches * rounds
    )
    return TaskPrice(_pipeline_terms(rates, single, 1))


def training_price(problem: Problem, task: Task, layout: Layout) -> TaskPrice:
    """Optimizer steps over the batch: each a pipeline over its mini-batch, a gradient synchronisation and an update."""
    rates = stage_rates(problem, task, ranks=layout.ranks, micro=layout.micro, training=True)
    steps = problem.work.optimizer_steps
    terms = _pipeline_terms(rates, layout, steps)
    sync, update = _after_backward(problem, task, layout)
    return TaskPrice({**terms, "dp": steps * sync, "optimizer": steps * update})


def _after_backward(problem: Problem, task: Task, layout: Layout) -> tuple[float, float]:
    """Seconds of one gradient synchronisation and one update, on the slowest stage and shard."""
    fleet, engine, tp = problem.fleet, problem.engine, layout.tp
    factor = float(problem.factors(task.name)[layout.ranks].max())
    sync = update = 0.0
    for j, layers in enumerate(layout.layers):
        params = held_params(task.model, layers=layers, first=j == 0, last=j == layout.pp - 1, value_head=task.value_head) / tp
        gather = params * (problem.element_bytes if engine.optimizer_sharded else engine.gradient_bytes)
        shards = layout.dp if engine.optimizer_sharded else 1
        slowest = float(fleet.hbm_bytes_per_s[layout.ranks[:, j]].min())
        update = max(update, params / shards * OPTIMIZER_BYTES_PER_PARAM / slowest)
        if layout.dp > 1:
            for k in range(tp):
                ring = tuple(int(d) for d in layout.ranks[:, j, k])
                sync = max(
                    sync,
                    gradient_sync_s(
                        ring,
                        machine=fleet.machine,
                        latency_s=fleet.latency_s,
                        inverse_bandwidth=fleet.inverse_bandwidth,
                        reduce_bytes=params * engine.gradient_bytes,
                        gather_bytes=gather,
                    ),
                )
    return factor * sync, factor * update
