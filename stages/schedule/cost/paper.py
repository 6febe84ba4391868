"""The published HetRL cost model, term for term, so that its claims can be replayed: ``fidelity: paper``.

Symbols: S longest prompt and response together, nm micro-batches of mbs sequences a replica runs in an iteration, L_j layers of stage j,
w bytes an element, (α, β) latency and bandwidth of a pair of devices, F_d and H_d data-sheet FLOP/s and bytes/s (where the sheet is
unknown: what was achieved). Attention counts 4h² weights and no causal mask; embedding and output head are free. Where the text leaves
room:

- prefill computes the prompts at their maximum length, and what it sends between stages and shards is that long too;
- Φ is given for tasks that all share a group or all have their own; between the two, groups work side by side and a group's tasks in a row,
  which is the same at both ends;
- reshard and weight synchronisation are named without a formula and cost nothing here; the old log-probabilities are not in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from artifacts.model_spec import ModelSpec
from stages.schedule.cost.iteration import GroupPrice, TaskPrice
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem

Ints = NDArray[np.int64]
EXACT_RING = 9
"""Rings up to this size are the best of all orders; larger ones lie in the fleet's order, neighbours next to each other."""


@dataclass(frozen=True)
class PaperPrice:
    """Seconds of the iteration, and of each task by the published terms."""

    iteration_s: float
    tasks: dict[str, TaskPrice] = field(default_factory=dict)


def tp_bytes(*, w: int, mbs: int, tokens: float, h: int, tp: int) -> float:
    """cv_tp = w·mbs·S·h·2(tp−1)/tp."""
    return w * mbs * tokens * h * 2 * (tp - 1) / tp


def dp_bytes(*, w: int, layers: int, h: int, f: int, dp: int, tp: int) -> float:
    """cv_dp = w·L_j·(4h² + 3hf)·2(dp−1)/(dp·tp)."""
    return w * layers * weights_of_layer(h, f) * 2 * (dp - 1) / (dp * tp)


def weights_of_layer(h: int, f: int) -> float:
    """4h² + 3hf."""
    return 4.0 * h * h + 3.0 * h * f


def layer_flops(*, tokens: float, h: int, f: int) -> float:
    """8·S·h² + 4·S²·h + 6·S·h·f, one sequence, forward."""
    return 8.0 * tokens * h * h + 4.0 * tokens * tokens * h + 6.0 * tokens * h * f


def phi(groups: Sequence[float]) -> float:
    """Seconds of tasks that wait for each other only inside their groups; ``groups`` are the groups' sums."""
    return max(groups, default=0.0)


def best_ring(problem: Problem, ranks: Sequence[int], bytes_: float) -> float:
    """The least, over rings through these devices, of the slowest edge α + bytes/β; 0 for one device."""
    n = len(ranks)
    if n == 1:
        return 0.0
    order = sorted(int(r) for r in ranks)
    edge = np.array([[_edge(problem, a, b, bytes_) if a != b else 0.0 for b in order] for a in order])
    if n > EXACT_RING:
        return max(float(edge[i, (i + 1) % n]) for i in range(n))
    best = np.full((1 << n, n), np.inf)
    best[1, 0] = 0.0
    for visited in range(1, 1 << n, 2):
        for last in range(n):
            if visited >> last & 1 and np.isfinite(best[visited, last]):
                for to in range(1, n):
                    if not visited >> to & 1:
                        reached = visited | 1 << to
                        best[reached, to] = min(best[reached, to], max(best[visited, last], edge[last, to]))
    return float(np.maximum(best[-1, 1:], edge[1:, 0]).min())


def _edge(problem: Problem, a: int, b: int, bytes_: float) -> float:
    fleet = problem.fleet
    return float(fleet.latency_s[a, b] + bytes_ * fleet.inverse_bandwidth[a, b])


def _peak(problem: Problem, device: int) -> float:
    found = problem.fleet.devices[device]
    return (found.peak_flops_per_s or found.achieved_flops_per_s).value


@dataclass(frozen=True)
class _Stage:
    """Terms of one stage of one replica."""

    comp: float
    tp: float
    pp: float
    hbm: float = 0.0

    @property
    def seconds(self) -> float:
        return self.comp + self.tp + self.pp + self.hbm


def task_terms(problem: Problem, name: str, layout: Layout, *, in_flight: Sequence[int] = ()) -> TaskPrice:
    """Ψ of one task by the terms of its slowest replica's slowest stage. ``in_flight``: decode batch of each replica, for the rollout."""
    task, work, w = problem.task(name), problem.work, problem.element_bytes
    rollout = name == "rollout"
    tokens = float(work.prompt_max if rollout else work.prompt_max + work.response_max)
    repeats = work.epochs if task.training else 1
    worst: tuple[float, dict[str, float]] = (-1.0, {})
    for i in range(layout.dp):
        mbs = layout.micro[i]
        nm = repeats * layout.local[i] / mbs
        stages = [
            _stage(
                problem,
                task.model,
                layout,
                i,
                j,
                tokens=tokens,
                nm=nm,
                mbs=mbs,
                training=task.training,
                decode=in_flight[i] if rollout else 0,
            )
            for j in range(layout.pp)
        ]
        slowest = max(stages, key=lambda s: s.seconds)
        bubble = sum(s.seconds for s in stages[1:]) / nm if task.training else 0.0
        if slowest.seconds + bubble > worst[0]:
            terms = {"compute": slowest.comp, "tp": slowest.tp, "pp": slowest.pp, "hbm": slowest.hbm, "bubble": bubble}
            worst = (slowest.seconds + bubble, terms)
    terms = worst[1]
    if task.training and layout.dp > 1:
        terms["dp"] = max(
            best_ring(
                problem,
                [int(d) for d in layout.ranks[:, j, k]],
                dp_bytes(w=w, layers=layout.layers[j], h=task.model.hidden, f=task.model.intermediate, dp=layout.dp, tp=layout.tp),
            )
            for j in range(layout.pp)
            for k in range(layout.tp)
        )
    return TaskPrice({term: s for term, s in terms.items() if s})


def _stage(
    problem: Problem, model: ModelSpec, layout: Layout, i: int, j: int, *, tokens: float, nm: float, mbs: int, training: bool, decode: int
) -> _Stage:
    w, h, tp, layers = problem.element_bytes, model.hidden, layout.tp, layout.layers[j]
    shards = [int(d) for d in layout.ranks[i, j]]
    times = 6 if training else 2
    comp = max(nm * mbs * layers * layer_flops(tokens=tokens, h=h, f=model.intermediate) / (_peak(problem, d) * tp) for d in shards)
    ring = best_ring(problem, shards, tp_bytes(w=w, mbs=mbs, tokens=tokens, h=h, tp=tp)) if tp > 1 else 0.0
    hop = 0.0
    if j + 1 < layout.pp:
        sent = w * mbs * tokens * h
        hop = nm * min(_edge(problem, d, int(e), sent) for d in shards for e in layout.ranks[i, j + 1]) * (2 if training else 1)
    hbm = 0.0
    if decode:
        read = w * layers * weights_of_layer(h, model.intermediate)
        hbm = max(
            problem.work.response_max * nm * mbs * read / (decode * problem.fleet.devices[d].memory_bandwidth_bytes_per_s.value * tp)
            for d in shards
        )
    return _Stage(comp=(3 if training else 1) * comp, tp=times * nm * layers * ring, pp=hop, hbm=hbm)


def paper_price(problem: Problem, groups: Sequence[GroupPrice]) -> PaperPrice:
    """The published iteration: sync = gen + Φ(inference) + Φ(training); async = max(gen, Φ(inference) + Φ(training))."""
    tasks: dict[str, TaskPrice] = {}
    inference, training, rollout = [], [], 0.0
    for group in groups:
        sums = {"inference": 0.0, "training": 0.0}
        for name, layout in group.layouts.items():
            price = tasks[name] = task_terms(problem, name, layout, in_flight=layout.micro if name == "rollout" else ())
            if name == "rollout":
                rollout = price.time_s
            else:
                sums["training" if name.endswith("_training") else "inference"] += price.time_s
        inference.append(sums["inference"])
        training.append(sums["training"])
    rest = phi(inference) + phi(training)
    return PaperPrice(iteration_s=max(rollout, rest) if problem.job.mode == "async" else rollout + rest, tasks=tasks)
