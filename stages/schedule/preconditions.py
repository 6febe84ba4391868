"""What can be said before any search: rules that the job, its constraints or the fleet break whatever the plan."""

from __future__ import annotations

from math import prod

import numpy as np

from artifacts.units import show_bytes
from stages.schedule.cost.memory import training_state_bytes_per_param
from stages.schedule.problem import Problem, Task
from stages.schedule.search.space import bundles, groupings, legal_tps, mask_of
from stages.schedule.violations import CONSTRAINT, HARDWARE, JOB, SETTING, Violation


def preconditions(problem: Problem) -> list[Violation]:
    """All violations that hold for every plan of this problem; empty: a search is worth while."""
    return [
        *_engine(problem),
        *_constraint_names(problem),
        *_places(problem),
        *_degrees(problem),
        *_limit(problem),
        *_weights(problem),
    ]


def _engine(problem: Problem) -> list[Violation]:
    engine, job = problem.engine, problem.job
    name = f"{engine.engine} with rollout {engine.rollout_server}"
    found = []
    if job.mode not in engine.modes:
        found.append(Violation("mode", "job", f"{name} cannot run mode {job.mode!r}", f"set mode to {engine.modes[0]!r}", SETTING))
    if job.reward == "model" and not engine.reward_model:
        found.append(Violation("reward", "job", f"{name} has no reward model", "set reward to 'rule'", SETTING))
    for rule in engine.same_strategy:
        tasks = {t.name: t for t in problem.tasks}
        if (
            rule.when == "always"
            and rule.task in tasks
            and rule.as_ in tasks
            and tasks[rule.task].model.layers != tasks[rule.as_].model.layers
        ):
            found.append(
                Violation(
                    "same_strategy",
                    rule.task,
                    f"{rule.task} must take the strategy of {rule.as_}, but its model has "
                    f"{tasks[rule.task].model.layers} layers instead of {tasks[rule.as_].model.layers}",
                    "give both roles models of the same depth",
                )
            )
    return found


def _constraint_names(problem: Problem) -> list[Violation]:
    constraints, fleet = problem.job.constraints, problem.fleet
    known = {t.name for t in problem.tasks}
    found = []
    for key, tasks in (("pin", constraints.pin), ("fix", constraints.fix)):
        for task in tasks:
            if task not in known:
                found.append(
                    Violation(
                        "unknown",
                        f"{key}.{task}",
                        f"constraints.{key} names {task}, which this job does not run",
                        f"remove it; the job runs {', '.join(sorted(known))}",
                        CONSTRAINT,
                        f"{key}.{task}",
                    )
                )
    if constraints.keep_data_in and not set(constraints.keep_data_in) & set(fleet.regions):
        named = ", ".join(r for r in fleet.regions if r) or "none with a name"
        found.append(
            Violation(
                "unknown",
                "keep_data_in",
                f"constraints.keep_data_in names {', '.join(constraints.keep_data_in)}, the topology's regions are {named}",
                "name a region the topology has",
                CONSTRAINT,
                "keep_data_in",
            )
        )
    for task, machines in constraints.pin.items():
        for machine in machines:
            if machine not in fleet.machines:
                found.append(
                    Violation(
                        "unknown",
                        f"pin.{task}",
                        f"constraints.pin.{task} names machine {machine!r}, which the topology does not have",
                        f"use one of {', '.join(fleet.machines[:8])}",
                        CONSTRAINT,
                        f"pin.{task}",
                    )
                )
    return found


def _places(problem: Problem) -> list[Violation]:
    """Every bundle of tasks that must share a group needs a device that admits all of them."""
    found = []
    for bundle in bundles(problem):
        if mask_of(problem, bundle).any():
            continue
        named = ", ".join(bundle)
        pins = [t for t in bundle if t in problem.job.constraints.pin]
        if len(pins) > 1 and all(problem.allowed[t].any() for t in bundle):
            found.append(
                Violation(
                    "share_group",
                    named,
                    f"{named} must share their devices, but constraints.pin puts them on different machines",
                    f"pin {' and '.join(pins)} to a common machine",
                    CONSTRAINT,
                    f"pin.{pins[0]}",
                )
            )
            continue
        found.append(_nowhere(problem, bundle))
    return found


def _nowhere(problem: Problem, bundle: tuple[str, ...]) -> Violation:
    """Why no device admits these tasks: what excludes devices from all tasks, or the pins of these."""
    reasons = sorted(set(problem.excluded.values()))
    key = next((k for k in EXCLUDING if any(f"constraints.{k}" in r for r in reasons)), "")
    pinned = next((f"pin.{t}" for t in bundle if t in problem.job.constraints.pin), "")
    named = ", ".join(bundle)
    said = f"no device may run {named}: {'; '.join(reasons[:3]) or f'constraints.{pinned} leaves none'}"
    if key:
        return Violation("no_device", named, said, EXCLUDING[key], CONSTRAINT, key)
    if reasons:
        return Violation("no_device", named, said, "choose a precision the devices have", SETTING)
    return Violation("no_device", named, said, "pin to a machine that is there", CONSTRAINT, pinned)


EXCLUDING = {
    "forbid_regions": "allow one of the forbidden regions",
    "keep_data_in": "add a region of the topology to constraints.keep_data_in",
    "forbid_devices": "take devices out of constraints.forbid_devices",
}
"""Constraints that exclude devices from every task, and what loosens each."""


def _degrees(problem: Problem) -> list[Violation]:
    found = []
    for name, fixed in problem.job.constraints.fix.items():
        if name not in {t.name for t in problem.tasks}:
            continue
        key = f"fix.{name}"
        task = problem.task(name)
        tp, pp, dp = fixed.get("tp"), fixed.get("pp"), fixed.get("dp")
        if tp:
            found += _tensor_degree(problem, task, tp, key)
        if pp and (pp > 1 if name == "rollout" else pp > task.model.layers):
            most = 1 if name == "rollout" else task.model.layers
            found.append(
                Violation(
                    "pipeline",
                    name,
                    f"{name}: pp {pp} is more than {most} stage{'s' if most > 1 else ''} it can have",
                    f"set constraints.{key}.pp to at most {most}",
                    CONSTRAINT,
                    key,
                )
            )
        share = problem.work.mini_batch_sequences if task.training else problem.work.sequences
        if dp and dp > share:
            what = "mini-batch" if task.training else "batch"
            found.append(
                Violation(
                    "replicas",
                    name,
                    f"{name}: dp {dp} leaves replicas without a sequence, the {what} has {share}",
                    f"lower dp to {share}, or raise batch.{'mini_batch_prompts' if task.training else 'prompts'}",
                    CONSTRAINT,
                    key,
                )
            )
        elif dp and name != "rollout" and not problem.legal_dp(dp):
            divided = " and ".join(f"{what.replace('_', ' ')} {getattr(problem.work, what)}" for what in problem.engine.dp_divides)
            found.append(
                Violation(
                    "replicas",
                    name,
                    f"{name}: dp {dp} does not divide {divided}",
                    f"set constraints.{key}.dp to a divisor such as {problem.largest_dp(dp)}",
                    CONSTRAINT,
                    key,
                )
            )
        need = (dp or 1) * (pp or 1) * (tp or 1)
        have = int(problem.allowed[name].sum())
        if need > have:
            found.append(
                Violation(
                    "devices",
                    name,
                    f"{name}: fixed degrees need {need} devices, it may use {have}{_where(problem, name)}",
                    f"lower dp, pp or tp in constraints.{key}, or add {need - have} devices",
                    CONSTRAINT,
                    key,
                )
            )
        if (
            name == "rollout"
            and problem.engine.rollout.follows_actor
            and dp
            and (actor := problem.job.constraints.fix.get("actor_training"))
        ):
            ranks = prod(actor.get(d, 1) for d in ("dp", "pp", "tp"))
            if len(actor) == 3 and ranks != dp:
                found.append(
                    Violation(
                        "rollout",
                        name,
                        f"rollout has one replica on each of the actor's {ranks} ranks, not {dp}",
                        f"drop constraints.{key}.dp",
                        CONSTRAINT,
                        key,
                    )
                )
    return found


def _limit(problem: Problem) -> list[Violation]:
    """What needs more devices than constraints.max_devices allows, each by itself."""
    most = problem.job.constraints.max_devices
    if most is None:
        return []
    found = []
    groups = min((len(g) for g in groupings(problem)), default=0)
    if groups > most:
        what = f"{problem.job.algorithm} in mode {problem.job.mode} under these constraints needs {groups} groups with devices of their own"
        found.append(_over(what, groups, most))
    for name, fixed in problem.job.constraints.fix.items():
        need = prod(fixed.values())
        if need > most:
            found.append(_over(f"{name}: fixed degrees need {need} devices", need, most))
    return found


def _over(what: str, need: int, most: int) -> Violation:
    said = f"{what}, constraints.max_devices allows {most}"
    return Violation("max_devices", "cluster", said, f"raise constraints.max_devices to {need}", CONSTRAINT, "max_devices")


def _where(problem: Problem, task: str) -> str:
    """The machines a pinned task may use, with their devices: `` (node-b has 2)``."""
    pins = problem.job.constraints.pin.get(task)  # type: ignore[call-overload]
    if not pins:
        return ""
    devices = [d.machine for d, may in zip(problem.fleet.devices, problem.allowed[task], strict=True) if may]
    return f" ({', '.join(f'{m} has {devices.count(m)}' for m in sorted(set(pins)))})"


def _tensor_degree(problem: Problem, task: Task, tp: int, key: str) -> list[Violation]:
    rules = problem.engine.rollout.tp_divides if task.name == "rollout" else problem.engine.tp_divides
    left = [
        f"{what} {getattr(task.model, what)} % {tp} = {getattr(task.model, what) % tp}" for what in rules if getattr(task.model, what) % tp
    ]
    legal = (
        rollout_tps_free(problem)
        if task.name == "rollout"
        else [t for t in range(1, 33) if all(getattr(task.model, what) % t == 0 for what in rules)]
    )
    mend = f"set constraints.{key}.tp to one of {', '.join(map(str, legal))}"
    if left:
        return [
            Violation("tensor_parallel", task.name, f"{task.name}: tp {tp} does not divide {' and '.join(left)}", mend, CONSTRAINT, key)
        ]
    if task.name == "rollout" and tp > problem.engine.rollout.max_tp:
        return [
            Violation(
                "tensor_parallel",
                "rollout",
                f"rollout: tp {tp} is more than the {problem.engine.rollout_server} server's {problem.engine.rollout.max_tp}",
                mend,
                CONSTRAINT,
                key,
            )
        ]
    return []


def rollout_tps_free(problem: Problem) -> list[int]:
    """Tensor-parallel degrees rollout could have if the user fixed none."""
    rules, model = problem.engine.rollout, problem.task("rollout").model
    return [t for t in range(1, rules.max_tp + 1) if all(getattr(model, what) % t == 0 for what in rules.tp_divides)]


def _weights(problem: Problem) -> list[Violation]:
    """Weights, gradients and optimizer state, divided perfectly, against all the memory there is."""
    if problem.job.engine.offload:
        return []
    engine, w = problem.engine, problem.element_bytes
    state = training_state_bytes_per_param(element_bytes=w, gradient_bytes=engine.gradient_bytes, optimizer_shards=1)
    need = sum(t.model.params() * state for t in problem.tasks if t.training)
    largest = np.sort(problem.usable_bytes[problem.usable])[::-1]
    have, within = float(largest.sum()), float(largest[: problem.most_devices].sum())
    if have >= need > within > 0:
        count = int(np.searchsorted(np.cumsum(largest), need)) + 1
        what = f"training state alone needs {show_bytes(need)}, the {problem.most_devices} largest devices have {show_bytes(within)}"
        return [_over(what, count, problem.most_devices)]
    if need > have > 0:
        return [
            Violation(
                "memory",
                "cluster",
                f"training state alone needs {show_bytes(need)}, all usable devices together have {show_bytes(have)}",
                f"add devices with {show_bytes(need - have)} more memory, set engine.offload, or choose a smaller model",
                HARDWARE,
            )
        ]
    if have and not legal_tps(problem, tuple(t.name for t in problem.tasks if t.training), 1) and not problem.job.constraints.fix:
        return [Violation("tensor_parallel", "training", "no tensor-parallel degree is legal", "fix none", JOB)]
    return []
