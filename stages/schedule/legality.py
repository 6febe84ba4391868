"""Whether a plan keeps every rule. Independent of how the plan was found: it reads the document, and lists all that is broken."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from artifacts.job import TRAINING_TASKS
from artifacts.plan import Plan, Strategy
from artifacts.units import show_bytes
from stages.schedule.cost.iteration import PlanPrice, host_bytes
from stages.schedule.documents import micro_sizes, price_plan
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem
from stages.schedule.violations import CONSTRAINT, HARDWARE, JOB, SETTING, Violation


def broken_rules(problem: Problem, plan: Plan) -> list[Violation]:
    """Every rule this plan breaks; empty: it may run."""
    if plan.topology_fingerprint != problem.topology.fingerprint:
        return [Violation("fingerprint", "plan", "the plan was made for another topology", "schedule again for this one", SETTING)]
    missing = sorted({t.name for t in problem.tasks} ^ set(plan.tasks))
    known = {d.id for d in problem.fleet.devices}
    strangers = sorted({r for s in plan.tasks.values() for r in s.ranks} - known)
    found = [Violation("tasks", t, f"the plan and the job disagree about task {t}", "schedule again for this job") for t in missing]
    found += [Violation("devices", d, f"device {d} is not in the topology", "schedule again") for d in strangers]
    if found:
        return found
    for name, strategy in plan.tasks.items():
        found += _shape(problem, plan, name, strategy)
        found += _constraints(problem, name, strategy)
        found += _links(problem, name, strategy)
    found += _sharing(problem, plan)
    found += _count(problem, plan)
    if not found:
        price = price_plan(problem, plan)
        if price is None:
            found.append(Violation("strategy", "plan", "a strategy of the plan cannot be laid out", "schedule again"))
        else:
            found += memory_violations(problem, price)
    return found


def _shape(problem: Problem, plan: Plan, name: str, s: Strategy) -> Iterator[Violation]:
    task, engine, rollout = problem.task(name), problem.engine, name == "rollout"
    if sum(s.layers) != task.model.layers:
        yield Violation(
            "layers",
            name,
            f"{name}: layers {s.layers} sum to {sum(s.layers)}, the model has {task.model.layers}",
            "assign every layer once",
        )
    if not engine.uneven_layers and len(set(s.layers)) > 1:
        yield Violation("layers", name, f"{name}: stages of unequal depth {s.layers}", "make them equal")
    if sum(s.local_batch_sequences) != problem.work.sequences:
        yield Violation(
            "batch",
            name,
            f"{name}: local batches sum to {sum(s.local_batch_sequences)}, the batch has {problem.work.sequences}",
            "deal every sequence once",
        )
    if min(s.local_batch_sequences) < 1:
        yield Violation("batch", name, f"{name}: a replica has no sequence", "drop the replica")
    if not engine.uneven_batches and len(set(s.local_batch_sequences)) > 1:
        yield Violation("batch", name, f"{name}: unequal local batches", "make them equal")
    divides = engine.rollout.tp_divides if rollout else engine.tp_divides
    for what in divides:
        if getattr(task.model, what) % s.tp:
            yield Violation(
                "tensor_parallel",
                name,
                f"{name}: tp {s.tp} does not divide {what} {getattr(task.model, what)}",
                "choose a divisor",
                SETTING,
            )
    if rollout:
        yield from _rollout(problem, plan, s)
        return
    if not problem.legal_dp(s.dp):
        yield Violation("replicas", name, f"{name}: dp {s.dp} does not divide {problem.engine.dp_divides}", "choose a divisor", SETTING)
    followed_by_training = name in TRAINING_TASKS or any(
        r.task == name and r.as_ in plan.group_of(name).tasks for r in engine.same_strategy
    )
    if micro_sizes(problem, s, training=followed_by_training) is None:
        yield Violation(
            "micro_batches",
            name,
            f"{name}: local batches {s.local_batch_sequences} are not equal numbers of micro-batches of at most "
            f"{s.micro_batch_sequences} in each mini-batch",
            "make every share a multiple of one number of micro-batches",
        )
    if s.micro_batch_sequences > problem.work.micro_batch_sequences:
        yield Violation(
            "micro_batches",
            name,
            f"{name}: micro-batches of {s.micro_batch_sequences} sequences, the job allows {problem.work.micro_batch_sequences}",
            "lower them",
            SETTING,
        )


def _rollout(problem: Problem, plan: Plan, s: Strategy) -> Iterator[Violation]:
    rules, group = problem.engine.rollout, plan.group_of("rollout")
    if s.pp != 1:
        yield Violation("pipeline", "rollout", f"rollout: pp {s.pp}, the server runs one stage", "use tp instead", SETTING)
    if s.tp > rules.max_tp:
        yield Violation("tensor_parallel", "rollout", f"rollout: tp {s.tp}, the server allows {rules.max_tp}", "lower it", SETTING)
    beside = [t for t in group.tasks if t != "rollout"]
    if beside and "actor_training" not in beside:
        yield Violation(
            "rollout",
            "rollout",
            f"rollout shares a group with {', '.join(beside)} but not with actor_training",
            "give it its own group",
            SETTING,
        )
    if beside and problem.job.mode == "async" and rules.alone_in_async:
        yield Violation("rollout", "rollout", "asynchronous rollout shares its group", "give it its own group", SETTING)
    if beside and "actor_training" in beside and s.ranks != plan.tasks["actor_training"].ranks:
        yield Violation("rollout", "rollout", "rollout is not on the actor's ranks in their order", "use the actor's rank order", SETTING)


def _constraints(problem: Problem, name: str, s: Strategy) -> Iterator[Violation]:
    index = {d.id: i for i, d in enumerate(problem.fleet.devices)}
    pins = problem.job.constraints.pin.get(name)  # type: ignore[call-overload]
    for rank in s.ranks:
        if rank in problem.excluded:
            yield Violation("device", name, f"{name}: device {rank}: {problem.excluded[rank]}", "leave the device out", SETTING)
        elif not problem.allowed[name][index[rank]]:
            yield Violation(
                "pin",
                name,
                f"{name}: device {rank} is on machine {problem.fleet.devices[index[rank]].machine}, pinned to {', '.join(pins)}",
                f"use a pinned machine, or change constraints.pin.{name}",
                CONSTRAINT,
                f"pin.{name}",
            )
    for degree, value in problem.job.constraints.fix.get(name, {}).items():  # type: ignore[call-overload]
        if getattr(s, degree) != value:
            yield Violation(
                "fix",
                name,
                f"{name}: {degree} {getattr(s, degree)}, fixed to {value}",
                f"drop constraints.fix.{name}.{degree}",
                CONSTRAINT,
                f"fix.{name}.{degree}",
            )


def _links(problem: Problem, name: str, s: Strategy) -> Iterator[Violation]:
    """No hop and no ring, which runs in the fleet's order as it is priced, over a pair of machines without a usable link."""
    fleet = problem.fleet
    index = {d.id: i for i, d in enumerate(fleet.devices)}
    ranks = np.array([index[r] for r in s.ranks]).reshape(s.dp, s.pp, s.tp)
    pairs = set()
    for axis in range(3):
        if name == "rollout" and axis == 0:
            continue
        if axis == 1:
            a, b = ranks[:, :-1], ranks[:, 1:]
        else:
            a = np.sort(ranks, axis=axis)
            b = np.roll(a, -1, axis=axis)
        bad = fleet.latency_s[a, b] >= UNUSABLE_S
        pairs |= {(fleet.devices[x].machine, fleet.devices[y].machine) for x, y in zip(a[bad], b[bad], strict=True)}
    for source, target in sorted(pairs):
        yield Violation(
            "link",
            name,
            f"{name} communicates from {source} to {target}, which no usable link joins",
            "probe the link again, or keep them apart",
            HARDWARE,
        )


def _sharing(problem: Problem, plan: Plan) -> Iterator[Violation]:
    engine = problem.engine
    for together in engine.share_group:
        groups = {plan.group_of(t).name for t in together if t in plan.tasks}
        if len(groups) > 1:
            yield Violation(
                "share_group",
                ", ".join(together),
                f"{', '.join(together)} must share a group, the plan has them in {', '.join(sorted(groups))}",
                "put them in one group",
                SETTING,
            )
    for rule in engine.same_strategy:
        if rule.task in plan.tasks and rule.as_ in plan.tasks:
            same_group = plan.group_of(rule.task).name == plan.group_of(rule.as_).name
            same_depth = problem.task(rule.task).model.layers == problem.task(rule.as_).model.layers
            if (rule.when == "always" or (same_group and same_depth)) and plan.tasks[rule.task] != plan.tasks[rule.as_]:
                yield Violation(
                    "same_strategy", rule.task, f"{rule.task} must have the strategy of {rule.as_}", "give both the same", SETTING
                )
    if engine.one_layout_per_group:
        for group in plan.groups:
            layouts = {(s.dp, s.pp, s.tp, tuple(s.ranks)) for t in group.tasks if t != "rollout" for s in [plan.tasks[t]]}
            if len(layouts) > 1:
                yield Violation(
                    "one_layout_per_group",
                    group.name,
                    f"group {group.name}: its tasks have different dp, pp, tp or ranks",
                    "give them one layout or groups of their own",
                    SETTING,
                )


def _count(problem: Problem, plan: Plan) -> Iterator[Violation]:
    used, most = sum(len(g.devices) for g in plan.groups), problem.job.constraints.max_devices
    if most is not None and used > most:
        yield Violation(
            "max_devices",
            "plan",
            f"the plan uses {used} devices, constraints.max_devices allows {most}",
            "schedule again, or raise constraints.max_devices",
            CONSTRAINT,
            "max_devices",
        )


def memory_violations(problem: Problem, price: PlanPrice) -> list[Violation]:
    """Devices and machines whose memory the plan overruns: which memory, which phase needs most, by how much."""
    found = []
    for group in price.groups:
        peak, usable = group.memory.peak(), problem.usable_bytes[group.memory.devices]
        for slot in np.flatnonzero(peak > usable * (1 + 1e-6) + 1):
            device = problem.fleet.devices[group.memory.devices[slot]]
            phase = max(group.memory.working, key=lambda t: group.memory.working[t][slot])
            held = max(group.memory.resident, key=lambda t: group.memory.resident[t][slot])
            found.append(
                Violation(
                    "memory",
                    device.id,
                    f"device {device.id} ({show_bytes(device.memory_bytes)}) needs {show_bytes(peak[slot])} of {show_bytes(usable[slot])} "
                    f"usable, most in phase {phase} ({show_bytes(group.memory.working[phase][slot])}) beside {held} "
                    f"({show_bytes(group.memory.resident[held][slot])})",
                    *_memory_mend(problem, phase),
                )
            )
        if group.overflow > 0 and not any(v.rule == "memory" for v in found):
            found.append(
                Violation(
                    "memory",
                    "rollout",
                    "a rollout replica cannot hold the KV cache of one sequence of maximum length",
                    "shorten response_tokens.max, or give rollout more shards",
                    JOB,
                )
            )
    need, have = host_bytes(problem, price.groups), problem.fleet.host_memory_bytes * (1 - problem.engine.memory.reserve)
    for m in np.flatnonzero(need > have * (1 + 1e-6) + 1):
        found.append(
            Violation(
                "host_memory",
                problem.fleet.machines[m],
                f"machine {problem.fleet.machines[m]}: host memory, {show_bytes(need[m])} needed of {show_bytes(have[m])} usable, "
                f"{_most_on_host(problem, price, int(m))}",
                "set engine.offload to false, or use fewer devices of the machine"
                if problem.job.engine.offload
                else "use fewer devices of the machine",
                SETTING,
            )
        )
    return found


def _most_on_host(problem: Problem, price: PlanPrice, machine: int) -> str:
    """What takes most of a machine's own memory: a task's offloaded state while it waits, or on CPUs a task while it runs."""
    shares: dict[str, float] = {}
    for group in price.groups:
        here = problem.fleet.machine[group.memory.devices] == machine
        cpus = here & problem.fleet.memory_is_host[group.memory.devices]
        for task in group.memory.working:
            if task in group.memory.offloaded:
                shares[f"kept for {task} outside its phase"] = float(group.memory.offloaded[task][here].sum())
            elif cpus.any():
                shares[f"in phase {task}"] = float(group.memory.working[task][cpus].sum())
    where = max(shares, key=lambda w: shares[w])
    return f"most {where} ({show_bytes(shares[where])})"


def _memory_mend(problem: Problem, phase: str) -> tuple[str, int]:
    job = problem.job
    if phase.endswith("_training") and job.engine.recompute != "full":
        return "set engine.recompute to 'full'", SETTING
    if not job.engine.offload and not problem.fleet.memory_is_host.all():
        return "set engine.offload to true", SETTING
    if phase != "rollout" and job.batch.micro_batch_sequences > 1:
        return "lower batch.micro_batch_sequences", SETTING
    return "use devices with more memory, or a smaller model", HARDWARE
