"""Between the search's own values and the documents that are handed on: plan, prediction, search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from artifacts.plan import Group, Plan, Strategy
from artifacts.search import Operator, Search
from stages.schedule.cost.iteration import PlanPrice, compose, price_layouts
from stages.schedule.draft import Cut, Draft, GroupDraft, Layout
from stages.schedule.prediction import prediction_document as prediction_document
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import TASK_ORDER

GROUP_WORDS = {
    "rollout": "rollout",
    "reward_inference": "reward",
    "reference_inference": "reference",
    "critic_inference": "critic",
    "critic_training": "critic",
    "actor_training": "actor",
}


def group_name(tasks: tuple[str, ...]) -> str:
    """What a group is called: the roles in it."""
    return "-".join(dict.fromkeys(GROUP_WORDS[t] for t in sorted(tasks, key=TASK_ORDER.index)))


def plan_document(problem: Problem, price: PlanPrice, *, solver: str, idle: dict[str, str], reasons: dict[str, str]) -> Plan:
    """The plan a price was computed for. ``reasons`` by group name; ``idle`` by device id."""
    ids = [d.id for d in problem.fleet.devices]
    groups = []
    for group in price.groups:
        name, tasks_here = group_name(group.tasks), list(group.tasks)
        devices = [ids[d] for d in group.memory.devices]
        groups.append(Group(name=name, tasks=tasks_here, devices=devices, reason=reasons.get(name, "")))  # type: ignore[arg-type]
    tasks = {name: strategy_document(problem, layout) for g in price.groups for name, layout in g.layouts.items()}
    hints: dict[str, str | int | float | bool] = {"engine": problem.engine.engine, "rollout": problem.engine.rollout_server}
    for group in price.groups:
        if "rollout" in group.layouts:
            layout = group.layouts["rollout"]
            hints["rollout_sequences_in_flight"] = max(layout.micro)
            hints["rollout_kv_bytes_per_device"] = int(group.kv_bytes)
    notes = [f"{g.name}: {g.reason}" for g in groups if g.reason]
    return Plan(
        job=problem.job.identity(),
        topology_fingerprint=problem.topology.fingerprint,
        groups=groups,
        tasks=tasks,  # type: ignore[arg-type]
        idle_devices=idle,
        engine_hints=hints,
        reasons=notes,
        solver=solver,
    )


def strategy_document(problem: Problem, layout: Layout) -> Strategy:
    ids = [d.id for d in problem.fleet.devices]
    return Strategy(
        dp=layout.dp,
        pp=layout.pp,
        tp=layout.tp,
        layers=list(layout.layers),
        ranks=[ids[d] for d in layout.devices()],
        local_batch_sequences=list(layout.local),
        micro_batch_sequences=max(layout.micro),
    )


def micro_sizes(problem: Problem, strategy: Strategy, *, training: bool) -> tuple[int, tuple[int, ...]] | None:
    """(micro-batches of a mini-batch, sequences in one on each replica) of a strategy; None where its shares make none.

    The busiest replica's micro-batch is the strategy's; all have the same number of them.
    """
    rounds = problem.work.mini_batches if training else 1
    shares = [n // rounds for n in strategy.local_batch_sequences]
    if any(n % rounds for n in strategy.local_batch_sequences) or min(shares) < 1 or max(shares) % strategy.micro_batch_sequences:
        return None
    count = max(shares) // strategy.micro_batch_sequences
    return None if any(s % count for s in shares) else (count, tuple(s // count for s in shares))


def price_plan(problem: Problem, plan: Plan) -> PlanPrice | None:
    """Price a plan document as it stands (its layers, shares and micro-batches); None where a strategy cannot be run."""
    index = {d.id: i for i, d in enumerate(problem.fleet.devices)}
    groups = []
    for group in plan.groups:
        layouts: dict[str, Layout] = {}
        trained_here = any(t.endswith("_training") for t in group.tasks)
        for name in group.tasks:
            strategy = plan.tasks[name]
            ranks = np.array([index[r] for r in strategy.ranks], dtype=np.int64).reshape(strategy.dp, strategy.pp, strategy.tp)
            if name == "rollout":
                shares = tuple(strategy.local_batch_sequences)
                layouts[name] = Layout(ranks=ranks, layers=tuple(strategy.layers), local=shares, micro=shares, micro_batches=1)
                continue
            found = micro_sizes(problem, strategy, training=trained_here) or micro_sizes(problem, strategy, training=False)
            if found is None:
                return None
            layouts[name] = Layout(
                ranks=ranks,
                layers=tuple(strategy.layers),
                local=tuple(strategy.local_batch_sequences),
                micro=found[1],
                micro_batches=found[0],
            )
        priced = price_layouts(problem, tuple(group.tasks), layouts)
        if priced is None:
            return None
        groups.append(priced)
    return compose(problem, groups)


def draft_of_plan(problem: Problem, plan: Plan) -> Draft | None:
    """A plan made for an earlier topology as a start for this one: devices that are gone are left out, replicas reduced to what remains."""
    index = {d.id: i for i, d in enumerate(problem.fleet.devices)}
    if {t for g in plan.groups for t in g.tasks} != {t.name for t in problem.tasks}:
        return None
    groups = []
    for group in plan.groups:
        tasks = tuple(sorted(group.tasks, key=TASK_ORDER.index))
        leader = _leader(tasks)
        strategy = plan.tasks[leader]  # type: ignore[index]
        devices = tuple(index[r] for r in strategy.ranks if r in index and all(problem.allowed[t][index[r]] for t in tasks))
        replicas = len(devices) // (strategy.pp * strategy.tp)
        if replicas < 1:
            return None
        cut = (
            None
            if leader == "rollout"
            else Cut(
                dp=problem.largest_dp(min(strategy.dp, replicas)),
                pp=strategy.pp,
                tp=strategy.tp,
                micro=min(strategy.micro_batch_sequences, problem.work.micro_batch_sequences),
            )
        )
        groups.append(GroupDraft(tasks=tasks, devices=devices, cut=cut, rollout_tp=plan.tasks["rollout"].tp if "rollout" in tasks else 0))
    return Draft(groups=tuple(groups))


def _leader(tasks: tuple[str, ...]) -> str:
    """The task whose ranks say how a group is cut."""
    return next((t for t in ("actor_training", "critic_training", *tasks) if t in tasks and t != "rollout"), "rollout")


def draft_of_whole_replicas(problem: Problem, plan: Plan) -> Draft | None:
    """An earlier plan as a start that keeps in place every replica none of whose devices is gone; devices of the others are spare.

    None where a group has no whole replica left, or the tasks are others.
    """
    index = {d.id: i for i, d in enumerate(problem.fleet.devices)}
    draft = draft_of_plan(problem, plan)
    if draft is None:
        return None
    groups = []
    for group in draft.groups:
        strategy = plan.tasks[_leader(group.tasks)]  # type: ignore[index]
        size = strategy.pp * strategy.tp
        replicas = [[index.get(r, -1) for r in strategy.ranks[i : i + size]] for i in range(0, len(strategy.ranks), size)]
        whole = [replica for replica in replicas if set(replica) <= set(group.devices)]
        if not whole:
            return None
        if group.cut is not None:
            group = replace(group, cut=replace(group.cut, dp=problem.largest_dp(min(strategy.dp, len(whole)))))
        first = [d for replica in whole for d in replica]
        groups.append(replace(group, devices=(*first, *(d for d in group.devices if d not in first))))
    return Draft(groups=tuple(groups))


def search_document(evaluator: Evaluator, report: SearchReport, *, solver: str, seed: int) -> Search:
    return Search(
        solver=solver,
        status="feasible",
        seed=seed,
        evaluations=evaluator.evaluations,
        seconds=round(evaluator.seconds, 3),
        trajectory=evaluator.trajectory,
        arms=report.arms,
        operators=[Operator(name=n, tried=c.tried, improved=c.improved) for n, c in sorted(report.operators.items())],
    )
