"""From a group's draft to the layouts of its training and inference tasks: ranks, layer splits, shares, micro-batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from artifacts.job import TRAINING_TASKS
from tests.stages.schedule.reference.balance import deal_micro_batches, split_layers
from tests.stages.schedule.reference.residency import layer_bounds
from tests.stages.schedule.reference.tasks import StageRates, stage_rates
from stages.schedule.draft import Cut, GroupDraft, Layout
from tests.stages.schedule.reference.draft import deal_ranks
from stages.schedule.problem import Problem, Task

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def leader_of(problem: Problem, tasks: tuple[str, ...]) -> dict[str, str]:
    """Task → the task whose strategy it takes (itself, where it is free)."""
    lead = {t: t for t in tasks if t != "rollout"}
    for rule in problem.engine.same_strategy:
        if rule.task in lead and rule.as_ in lead and problem.task(rule.task).model.layers == problem.task(rule.as_).model.layers:
            lead[rule.task] = rule.as_
    return lead


def lay_out(problem: Problem, group: GroupDraft) -> dict[str, Layout] | None:
    """Layouts of the group's tasks other than rollout; None where the cut cannot be made."""
    cut = group.cut
    if cut is None:
        return {}
    ranks = deal_ranks(group.devices, problem.fleet.machine, cut)
    if ranks is None:
        return None
    lead = leader_of(problem, group.tasks)
    micro = _first_micro(problem, cut)
    bounds = layer_bounds(problem, group.tasks, lead, ranks=ranks, micro=micro, rollout_tp=group.rollout_tp)
    done: dict[str, Layout] = {}
    for leader in dict.fromkeys(lead.values()):
        followers = [t for t, by in lead.items() if by == leader]
        layout = _lay_out_family(problem, leader, followers, ranks=ranks, cut=cut, micro=micro, bounds=bounds)
        if layout is None:
            return None
        done.update({t: layout for t in followers})
    return done


def _first_micro(problem: Problem, cut: Cut) -> int:
    return max(1, min(cut.micro, -(-problem.work.mini_batch_sequences // cut.dp)))


def _lay_out_family(
    problem: Problem, leader: str, followers: list[str], *, ranks: Ints, cut: Cut, micro: int, bounds: Floats
) -> Layout | None:
    task = problem.task(leader)
    training = any(t in TRAINING_TASKS for t in followers)
    rates = stage_rates(problem, task, ranks=ranks, micro=(micro,) * cut.dp, training=task.training)
    layers = _split(problem, task, rates, bounds)
    if layers is None:
        return None
    costs = (np.array(layers) * rates.per_layer + rates.fixed).max(axis=1) / micro
    whole = problem.work.mini_batch_sequences if training else problem.work.sequences
    deal = deal_micro_batches(whole, _rounded(costs), most=cut.micro, stages=cut.pp, even=not problem.engine.uneven_batches)
    if deal is None:
        return None
    count, sizes = deal
    repeats = problem.work.sequences // whole
    return Layout(ranks=ranks, layers=layers, local=tuple(s * count * repeats for s in sizes), micro=sizes, micro_batches=count)


def _split(problem: Problem, task: Task, rates: StageRates, bounds: Floats) -> tuple[int, ...] | None:
    """Layers by stage, one split for all replicas: each replica's stage times count relative to its own mean stage."""
    total, stages = task.model.layers, rates.per_layer.shape[1]
    if stages == 1:
        return (total,)
    if not problem.engine.uneven_layers:
        return (total // stages,) * stages if total % stages == 0 else None
    scale = rates.per_layer.mean(axis=1, keepdims=True)
    per_layer, fixed = (rates.per_layer / scale).max(axis=0), (rates.fixed / scale).max(axis=0)
    most = np.floor(bounds * total + 1e-9).astype(int)
    bounded = split_layers(total, per_layer=per_layer.tolist(), fixed=fixed.tolist(), most=most.tolist())
    return bounded or split_layers(total, per_layer=per_layer.tolist(), fixed=fixed.tolist())


def _rounded(costs: Floats) -> tuple[float, ...]:
    """Costs to four digits, relative to the cheapest: measuring noise below that must not unbalance equals, and the memo stays small."""
    return tuple(float(f"{c:.4g}") for c in costs / costs.min())
