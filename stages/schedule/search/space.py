"""What may be combined: groupings of tasks, sizes of groups, cuts of a group's devices. Only what the engine can run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.iteration import mean_rank_bytes
from stages.schedule.draft import Cut, GroupDraft, unit_count
from stages.schedule.problem import Problem

Grouping = tuple[tuple[str, ...], ...]
Sizes = tuple[int, ...]

PIPELINE_DEPTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
MOST_SIZE_VECTORS = 2000
HOPELESS_FILL = 2.0
"""Cuts whose mean rank needs twice the mean device's memory are not tried while others exist (smaller micro-batches may halve it)."""
TASK_ORDER = ("rollout", "reward_inference", "reference_inference", "critic_inference", "actor_training", "critic_training")


def bundles(problem: Problem) -> list[tuple[str, ...]]:
    """Tasks that must share a group, joined; every task in exactly one bundle."""
    sets = [{t.name} for t in problem.tasks]
    for together in problem.engine.share_group:
        members = [s for s in sets if s & set(together)]
        if len(members) > 1:
            joined: set[str] = set().union(*members)  # type: ignore[arg-type]
            sets = [s for s in sets if not s & joined] + [joined]  # type: ignore[list-item]
    return sorted((tuple(sorted(s, key=TASK_ORDER.index)) for s in sets), key=lambda b: TASK_ORDER.index(b[0]))


def groupings(problem: Problem) -> list[Grouping]:
    """Level 1: set partitions of the bundles that the engine can run."""
    found = []
    for partition in _partitions(bundles(problem)):
        groups = tuple(tuple(sorted((t for b in part for t in b), key=TASK_ORDER.index)) for part in partition)
        if all(group_allowed(problem, g) for g in groups):
            found.append(groups)
    return found


def group_allowed(problem: Problem, tasks: tuple[str, ...]) -> bool:
    """Rollout runs alone or beside the actor's training; alone in asynchronous mode; some device admits all tasks of the group."""
    if "rollout" in tasks and len(tasks) > 1:
        alone = problem.job.mode == "async" and problem.engine.rollout.alone_in_async
        if alone or "actor_training" not in tasks:
            return False
    return bool(mask_of(problem, tasks).any())


def mask_of(problem: Problem, tasks: tuple[str, ...]) -> NDArray[np.bool_]:
    """Devices that all of these tasks may use, ``[D]``."""
    return np.logical_and.reduce([problem.allowed[t] for t in tasks])  # type: ignore[no-any-return]


def _partitions(items: list[tuple[str, ...]]) -> Iterator[list[list[tuple[str, ...]]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in _partitions(rest):
        for i in range(len(partition)):
            yield [*partition[:i], [first, *partition[i]], *partition[i + 1 :]]
        yield [[first], *partition]


def legal_tps(problem: Problem, tasks: tuple[str, ...], most: int) -> list[int]:
    """Tensor-parallel degrees up to ``most`` that divide what they must in every model of the group's training and inference tasks."""
    models = [problem.task(t).model for t in tasks if t != "rollout"]
    wanted = _fixed(problem, tasks, "tp")
    return [
        tp
        for tp in range(1, most + 1)
        if all(getattr(m, what) % tp == 0 for m in models for what in problem.engine.tp_divides) and wanted in (None, tp)
    ]


def rollout_tps(problem: Problem, most: int) -> list[int]:
    """Tensor-parallel degrees of a generation replica."""
    rules = problem.engine.rollout
    model = problem.task("rollout").model
    wanted = problem.job.constraints.fix.get("rollout", {}).get("tp")
    return [
        tp
        for tp in range(1, min(most, rules.max_tp) + 1)
        if all(getattr(model, what) % tp == 0 for what in rules.tp_divides) and wanted in (None, tp)
    ]


def _fixed(problem: Problem, tasks: tuple[str, ...], degree: str) -> int | None:
    """The degree the user fixed for these tasks; -1 where two tasks that share a layout were fixed differently."""
    values = {problem.job.constraints.fix.get(t, {}).get(degree) for t in tasks if t != "rollout"} - {None}  # type: ignore[call-overload]
    return None if not values else values.pop() if len(values) == 1 else -1


def cuts(problem: Problem, tasks: tuple[str, ...], devices: tuple[int, ...], *, thorough: bool) -> tuple[Cut, ...]:
    """Level 4: ways to cut these devices, most promising first: what seems to fit, with few shards, every unit used.

    ``thorough`` adds smaller replica counts (devices left over) and smaller micro-batches. Memoised by the set of devices: their order
    decides who does what, not which cuts there are.
    """
    key = (tasks, frozenset(devices), thorough)
    found = problem.cuts_memo.get(key)
    if found is None:
        found = problem.cuts_memo[key] = tuple(_cuts(problem, tasks, devices, thorough=thorough))
    return found


def _cuts(problem: Problem, tasks: tuple[str, ...], devices: tuple[int, ...], *, thorough: bool) -> list[Cut]:
    machine = problem.fleet.machine
    per_machine = max(np.bincount(machine[list(devices)]).max(), 1)
    most_tp = int(per_machine) if per_machine > 1 else len(devices)
    layers = min(problem.task(t).model.layers for t in tasks if t != "rollout")
    wanted_pp, wanted_dp = _fixed(problem, tasks, "pp"), _fixed(problem, tasks, "dp")
    found = []
    for tp in legal_tps(problem, tasks, min(most_tp, len(devices), 16)):
        units = unit_count(devices, tp)
        depths = sorted({*PIPELINE_DEPTHS, units, *([wanted_pp] if wanted_pp else [])})
        for pp in depths:
            if pp < 1 or pp > min(units, layers) or wanted_pp not in (None, pp):
                continue
            full = problem.largest_dp(units // pp)
            replicas = (
                [wanted_dp] if wanted_dp else [full, *([problem.largest_dp(n) for n in (full // 2, full - 1) if n] if thorough else [])]
            )
            for dp in dict.fromkeys(r for r in replicas if 1 <= r <= units // pp and problem.legal_dp(r)):
                for column in (False, True) if pp > 1 and dp > 1 else (False,):
                    found.append(Cut(dp=dp, pp=pp, tp=tp, micro=problem.work.micro_batch_sequences, column=column))
    fill = {shape: _fill(problem, tasks, devices, *shape) for shape in {(c.dp, c.pp, c.tp) for c in found}}

    def promise(cut: Cut) -> tuple[float, ...]:
        full = fill[cut.dp, cut.pp, cut.tp]
        return (0.0, float(2 * cut.ranks <= len(devices)), cut.tp * cut.pp, cut.pp) if full <= 1.0 else (1.0, full)

    found.sort(key=promise)
    hopeful = [c for c in found if fill[c.dp, c.pp, c.tp] <= HOPELESS_FILL]
    found = hopeful or found
    if thorough:
        found += [Cut(c.dp, c.pp, c.tp, m, c.column) for m in smaller_micros(problem) for c in found]
    return found


def smaller_micros(problem: Problem) -> list[int]:
    """Micro-batch bounds below the job's, halving."""
    sizes, size = [], problem.work.micro_batch_sequences // 2
    while size >= 1:
        sizes.append(size)
        size //= 2
    return sizes


def _fill(problem: Problem, tasks: tuple[str, ...], devices: tuple[int, ...], dp: int, pp: int, tp: int) -> float:
    """Memory the mean rank would need over the mean device's, roughly: equal stages, the job's micro-batch, rollout in at most 8 shards."""
    rollout_tp = min(8, dp * pp * tp, problem.engine.rollout.max_tp) if "rollout" in tasks else 0
    need = mean_rank_bytes(problem, tasks, dp=dp, pp=pp, tp=tp, micro=problem.work.micro_batch_sequences, rollout_tp=rollout_tp)
    return need / float(problem.usable_bytes[list(devices)].mean())


def size_vectors(problem: Problem, grouping: Grouping, *, most: int) -> list[Sizes]:
    """Level 2: sizes of the groups, best estimate first; devices may be left over.

    All compositions at single-device grain while they are few, else at the coarsest grain that keeps them few (machines hold 2, 4, 8 …).
    """
    total = min(int(np.logical_or.reduce([mask_of(problem, g) for g in grouping]).sum()), problem.most_devices)
    parts = len(grouping)
    grain = 1
    while comb(total // grain, parts) > MOST_SIZE_VECTORS and total // grain >= 2 * parts:
        grain *= 2
    steps = total // grain
    if steps < parts:
        return []
    caps = [int(mask_of(problem, g).sum()) for g in grouping]
    vectors = set()
    for bars in combinations(range(1, steps + 1), parts):
        marks = (0, *bars)
        sizes = tuple((b - a) * grain for a, b in pairwise(marks))
        if sum(sizes) + total % grain == total:
            sizes = (*sizes[:-1], sizes[-1] + total % grain)
        if sum(sizes) <= total and all(s <= c for s, c in zip(sizes, caps, strict=True)):
            vectors.add(sizes)
    work = device_seconds(problem)
    ranked = sorted(vectors, key=lambda sizes: (estimate(problem, grouping, sizes, work), sizes))
    return ranked[:most]


def estimate(problem: Problem, grouping: Grouping, sizes: Sizes, work: dict[str, float]) -> float:
    """Seconds of an iteration at mean rates with nothing communicated: what orders arms before anything is priced."""
    phases = {"rollout": 0.0, "inference": 0.0, "training": 0.0}
    for tasks, size in zip(grouping, sizes, strict=True):
        for phase in phases:
            seconds = sum(work[t] for t in tasks if _phase(t) == phase) / size
            phases[phase] = max(phases[phase], seconds)
    if problem.job.mode == "async":
        return max(phases["rollout"], phases["inference"] + phases["training"])
    return sum(phases.values())


def _phase(task: str) -> str:
    return "rollout" if task == "rollout" else "training" if task.endswith("_training") else "inference"


def device_seconds(problem: Problem) -> dict[str, float]:
    """Device-seconds of each task at the fleet's mean rates, roughly."""
    work, fleet = problem.work, problem.fleet
    flops_per_s = float(np.mean([c.best for c in fleet.curves]))
    hbm = float(fleet.hbm_bytes_per_s.mean())
    tokens = work.sequences * work.sequence_tokens
    found: dict[str, float] = {}
    for task in problem.tasks:
        model = task.model
        forward = model.layers * model.layer_matmul_flops(tokens) / flops_per_s
        if task.name == "rollout":
            passes = work.sequences * work.response_mean / 64
            found[task.name] = forward + passes * model.params() * problem.element_bytes / hbm
        else:
            found[task.name] = forward * (3 * work.epochs if task.training else 1)
    return found


def draft_group(problem: Problem, tasks: tuple[str, ...], devices: tuple[int, ...], cut: Cut | None, rollout_tp: int) -> GroupDraft:
    """A group's draft; rollout that follows the actor has one replica a rank."""
    if "rollout" in tasks and problem.engine.rollout.follows_actor:
        rollout_tp = 1
    return GroupDraft(tasks=tasks, devices=devices, cut=cut, rollout_tp=rollout_tp if "rollout" in tasks else 0)
