"""How long a training or inference task takes on a layout: 1F1B over unequal stages, the collectives inside, optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stages.schedule.draft import Layout
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem, Task
from tests.stages.schedule.reference.fleet import Crossings, Fleet
from tests.stages.schedule.reference.links import all_reduce, hop, ring_edges, ring_pass
from tests.stages.schedule.reference.memory import stage_params

Terms = dict[str, float]

SLOWER = 1.0 + 1e-12
"""Of two that take equally long but for rounding, the first is the slower."""
ADAM_BYTES = 30.0
"""Memory traffic of the update of a parameter: reads gradient, master copy, two moments (16), writes the last three and the weight (14)."""


@dataclass(frozen=True)
class Stage:
    """Seconds of one micro-batch on one stage of a replica; ``hbm`` is how much longer reading the weights takes than computing, ``host``
    how much longer launching the layers takes than running them (on a device that is its own host: all of it).
    """

    compute: float
    hbm: float
    activations: float
    tp: float
    host: float
    pp: float

    @property
    def seconds(self) -> float:
        return self.compute + self.hbm + self.activations + self.tp + self.host + self.pp


def one_f_one_b(stages: Sequence[float], micro_batches: int) -> float:
    """Σ_j t_j + (m − 1)·max_j t_j."""
    return sum(stages) + (micro_batches - 1) * max(stages)


def tp_crossings(fleet: Fleet, layout: Layout) -> Crossings:
    """All tensor-parallel rings of a task at one time."""
    return fleet.crossings(edge for replica in layout.ranks.tolist() for shards in replica for edge in ring_edges(shards))


def hop_crossings(fleet: Fleet, layout: Layout) -> Crossings:
    """All hops between stages of a task at one time."""
    return fleet.crossings(
        pair for replica in layout.ranks.tolist() for shards, following in pairwise(replica) for pair in zip(shards, following, strict=True)
    )


def gradient_crossings(fleet: Fleet, layout: Layout) -> Crossings:
    """The gradient rings of every stage and shard at one time."""
    ranks = layout.ranks
    rings = [ranks[:, j, k].tolist() for j in range(layout.pp) for k in range(layout.tp)]
    return fleet.crossings(edge for ring in rings for edge in ring_edges(ring))


def stage_price(
    problem: Problem, fleet: Fleet, task: Task, layout: Layout, *, replica: int, stage: int, training: bool, factor_of: str
) -> Stage:
    """Forward, or forward and backward, of one micro-batch; calibration multiplies all of it."""
    model, w, tp, micro = task.model, problem.element_bytes, layout.tp, layout.micro[replica]
    shards: list[int] = layout.ranks[replica, stage].tolist()
    layers, s = layout.layers[stage], problem.work.sequence_tokens
    tokens, full, engine = micro * s, problem.job.engine.recompute == "full", problem.engine
    factor = max(problem.factors(factor_of)[d] for d in shards)
    rate = fleet.slowest_rate(shards, tokens=tokens, hidden=model.hidden, tp=tp)

    forwards = (4 if full else 3) if training else 1  # a backward pass is two forward ones; full recomputation is one more
    passes = (3 if full else 2) if training else 1
    causal = 1 if engine.flash_attention else 2
    memory = fleet.slowest_memory(shards)
    layer = forwards * (model.layer_matmul_flops(tokens) + causal * micro * model.layer_attention_flops(s)) / tp / rate
    read = forwards * model.layer_params() * w / tp / memory
    whole, divided = model.pointwise_elements(fused=engine.fused_operations)
    if not engine.flash_attention:
        divided += model.score_elements(s)
    moved = forwards * tokens * w * (whole / (tp if engine.sequence_parallel else 1) + divided / tp) / memory
    head = softmax = 0.0
    if stage == layout.pp - 1:  # a value head is not divided, and the head is never recomputed
        if not task.value_head:
            softmax = tokens * model.vocab / tp * (44 if training else 30) / memory
        head = (3 if training else 1) * model.head_flops(tokens, value_head=task.value_head) / (1 if task.value_head else tp) / rate

    activations = tokens * model.hidden * w
    reduce = 2 * passes * all_reduce(fleet, shards, activations, tp_crossings(fleet, layout))
    sent = 0.0
    if stage < layout.pp - 1:
        each = activations / (tp if engine.divided_hops else 1)
        sent = hop(fleet, shards, layout.ranks[replica, stage + 1].tolist(), each, hop_crossings(fleet, layout), engine.hop_messages)
    waiting = max(0.0, read - layer)
    forward = (layer + waiting + moved) / forwards + reduce / passes
    backward = layer + waiting + moved + reduce - forward
    launch = (engine.launch_layer_s + engine.launch_token_s * tokens) * fleet.slowest_host(shards)
    own_host = engine.host_flops_per_s > 0
    host = passes * launch if own_host else max(0.0, launch - forward) + max(0.0, (passes - 1) * launch - backward)
    return Stage(
        compute=factor * (layers * layer + head),
        hbm=factor * layers * waiting,
        activations=factor * (layers * moved + softmax),
        tp=factor * layers * reduce,
        host=factor * layers * host,
        pp=factor * (2 if training else 1) * sent,
    )


def pass_terms(
    problem: Problem, fleet: Fleet, task: Task, layout: Layout, *, training: bool, micro_batches: int, rounds: int, factor_of: str
) -> Terms:
    """``rounds`` pipelines of ``micro_batches``: terms of the slowest replica's slowest stage, and the bubble around it."""
    slowest: list[Stage] = []
    for i in range(layout.dp):
        stages = [
            stage_price(problem, fleet, task, layout, replica=i, stage=j, training=training, factor_of=factor_of) for j in range(layout.pp)
        ]
        if not slowest or _pipeline(stages, micro_batches) > _pipeline(slowest, micro_batches) * SLOWER:
            slowest = stages
    worst = slowest[0]
    for stage in slowest[1:]:
        worst = stage if stage.seconds > worst.seconds * SLOWER else worst
    count = rounds * micro_batches
    return {
        "compute": count * worst.compute,
        "hbm": count * worst.hbm,
        "activations": count * worst.activations,
        "host": count * worst.host,
        "tp": count * worst.tp,
        "pp": count * worst.pp,
        "bubble": rounds * (sum(stage.seconds for stage in slowest) - worst.seconds),
    }


def _pipeline(stages: Sequence[Stage], micro_batches: int) -> float:
    return one_f_one_b([stage.seconds for stage in stages], micro_batches)


def inference_terms(problem: Problem, fleet: Fleet, task: Task, layout: Layout, *, factor_of: str) -> Terms:
    """One forward pass over the whole batch."""
    micro_batches = sum(layout.local) // sum(layout.micro)
    terms = pass_terms(problem, fleet, task, layout, training=False, micro_batches=micro_batches, rounds=1, factor_of=factor_of)
    if problem.engine.fully_sharded:
        factor = max(problem.factors(factor_of)[d] for d in layout.devices())
        terms["dp"] = factor * replicas_exchange(problem, fleet, task, layout, gathers=micro_batches, scatters=0)
    elif not _replicas_joined(fleet, layout):
        terms["dp"] = UNUSABLE_S
    return terms


def _replicas_joined(fleet: Fleet, layout: Layout) -> bool:
    """Whether every ring over the replicas has usable links."""
    rings = [layout.ranks[:, j, k].tolist() for j in range(layout.pp) for k in range(layout.tp)]
    pairs = [(fleet.machine[a], fleet.machine[b]) for ring in rings for a, b in ring_edges(ring)]
    return all(a == b or fleet.latency[a][b] < UNUSABLE_S for a, b in pairs)


def training_terms(problem: Problem, fleet: Fleet, task: Task, layout: Layout) -> Terms:
    """Optimizer steps over the batch, each a pipeline over its mini-batch, a gradient synchronisation and an update."""
    steps, engine, dp = problem.work.optimizer_steps, problem.engine, layout.dp
    terms = pass_terms(problem, fleet, task, layout, training=True, micro_batches=layout.micro_batches, rounds=steps, factor_of=task.name)
    factor = max(problem.factors(task.name)[d] for d in layout.devices())
    update = 0.0
    for j in range(layout.pp):
        params = stage_params(task, layout.layers[j], first=j == 0, last=j == layout.pp - 1) / layout.tp
        shards = dp if engine.optimizer_sharded else 1
        update = max(update, params / shards * ADAM_BYTES / fleet.slowest_memory(layout.ranks[:, j].ravel().tolist()))
    gathers = scatters = 1
    if engine.fully_sharded:  # for every pass of every micro-batch; after every one
        gathers, scatters = layout.micro_batches * (3 if problem.job.engine.recompute == "full" else 2), layout.micro_batches
    sync = replicas_exchange(problem, fleet, task, layout, gathers=gathers, scatters=scatters)
    return {**terms, "dp": steps * factor * sync, "optimizer": steps * factor * update}


def replicas_exchange(problem: Problem, fleet: Fleet, task: Task, layout: Layout, *, gathers: int, scatters: int) -> float:
    """So many reduce-scatters of the gradients and all-gathers on the slowest ring, all rings at one time. Gathered are the weights where
    the optimizer is sharded, else the gradients.
    """
    engine, crossings, slowest = problem.engine, gradient_crossings(fleet, layout), 0.0
    gathered = problem.element_bytes if engine.optimizer_sharded else engine.gradient_bytes
    for j in range(layout.pp):
        params = stage_params(task, layout.layers[j], first=j == 0, last=j == layout.pp - 1) / layout.tp
        for k in range(layout.tp):
            ring = layout.ranks[:, j, k].tolist()
            scatter = ring_pass(fleet, ring, params * engine.gradient_bytes, crossings)
            slowest = max(slowest, scatters * scatter + gathers * ring_pass(fleet, ring, params * gathered, crossings))
    return slowest
