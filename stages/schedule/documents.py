"""Between the search's own values and the documents that are handed on: plan, prediction, search."""

from __future__ import annotations

import numpy as np

from artifacts.plan import Group, Plan, Strategy
from artifacts.prediction import DeviceMemory, Prediction, TaskTime
from artifacts.search import Operator, Search
from artifacts.topology import Provenance
from stages.schedule.cost.bounds import roofline_s
from stages.schedule.cost.compute import equivalent_width
from stages.schedule.cost.iteration import PlanPrice, compose, price_layouts
from stages.schedule.draft import Cut, Draft, GroupDraft, Layout
from stages.schedule.problem import ACTOR_LOG_PROB, WEIGHT_UPDATE, Problem
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
        leader = next((t for t in ("actor_training", "critic_training", *tasks) if t in tasks and t != "rollout"), "rollout")
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


def prediction_document(problem: Problem, plan: Plan, price: PlanPrice, *, calibration: str = "") -> Prediction:
    """Times, memory and bound of a plan, with where the numbers came from."""
    starts = _starts(problem, price)
    tasks = {
        name: TaskTime(time_s=p.time_s, start_s=starts[name], terms=p.terms)
        for g in price.groups
        for name, p in g.prices.items()
        if name != ACTOR_LOG_PROB
    }
    other = {
        ACTOR_LOG_PROB: sum(g.prices[ACTOR_LOG_PROB].time_s for g in price.groups if ACTOR_LOG_PROB in g.prices),
        WEIGHT_UPDATE: price.weight_update_s,
    }
    if price.overhead_s:
        other["overhead"] = price.overhead_s
    return Prediction(
        plan=plan.identity(),
        fidelity="calibrated",
        iteration_time_s=price.iteration_s,
        throughput_samples_per_s=problem.work.sequences / price.iteration_s,
        tasks=tasks,  # type: ignore[arg-type]
        other_s=other,
        memory=_memory(problem, price),
        bound_s=roofline_s(problem),
        provenance=_provenance(problem, price),
        calibration=calibration,
    )


def _starts(problem: Problem, price: PlanPrice) -> dict[str, float]:
    """When each task starts: phases in order, tasks of a group one after the other."""
    asynchronous = problem.job.mode == "async"
    after_rollout = 0.0 if asynchronous else sum(g.rollout_s for g in price.groups)
    training_at = after_rollout + max(g.inference_s for g in price.groups)
    starts = {"rollout": 0.0}
    for group in price.groups:
        clock = {"inference": after_rollout, "training": training_at}
        for name in (ACTOR_LOG_PROB, *TASK_ORDER):
            if name in group.prices and name != "rollout":
                phase = "training" if name.endswith("_training") else "inference"
                starts[name] = clock[phase]
                clock[phase] += group.prices[name].time_s
    return starts


def _memory(problem: Problem, price: PlanPrice) -> dict[str, DeviceMemory]:
    found = {}
    for group in price.groups:
        for slot, device in enumerate(group.memory.devices):
            found[problem.fleet.devices[device].id] = DeviceMemory(
                capacity_bytes=int(problem.fleet.memory_bytes[device]),
                usable_bytes=int(problem.usable_bytes[device]),
                resident={k: int(v[slot]) for k, v in group.memory.resident.items() if v[slot] > 0},
                working={k: int(v[slot]) for k, v in group.memory.working.items() if v[slot] > 0},
            )
    return found


def _provenance(problem: Problem, price: PlanPrice) -> dict[str, Provenance]:
    """Where the numbers came from; a size outside what was measured makes the rate an assumption, said by name."""
    fleet = problem.fleet
    used = {int(c) for g in price.groups for c in fleet.device_class[g.memory.devices]}
    found: dict[str, Provenance] = {f"compute.{fleet.classes[c]}": fleet.rate_provenance[c] for c in used}
    for group in price.groups:
        for name, layout in group.layouts.items():
            width = equivalent_width(hidden=problem.task(name).model.hidden, tp=layout.tp)
            for replica, micro in enumerate(layout.micro):
                tokens = micro * (1.0 if name == "rollout" else problem.work.sequence_tokens)
                for c in set(fleet.device_class[layout.ranks[replica].ravel()].tolist()):
                    if not fleet.curves[c].covers(tokens=tokens, width=width):
                        found[f"compute.{fleet.classes[c]}.outside_measured_sizes"] = "assumed"
    found["links"] = fleet.link_provenance
    found["response_lengths"] = "spec" if problem.work.response_mean >= problem.work.response_max else "assumed"
    found["memory_overheads"] = "assumed"
    if problem.calibration:
        found["calibration"] = "calibrated"
    return found


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
