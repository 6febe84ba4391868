"""What there is to choose from: sets of tasks that may share a group, and the ways to cut a number of devices for them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stages.schedule.cost.tables import MOST_TP
from stages.schedule.draft import Cut
from stages.schedule.exact.cells import Cells, Vector
from stages.schedule.problem import Problem
from stages.schedule.search.space import TASK_ORDER, bundles, group_allowed, legal_tps, rollout_tps, smaller_micros


def task_sets(problem: Problem) -> list[tuple[str, ...]]:
    """Every set of tasks that may share a group."""
    parts = bundles(problem)
    found = []
    for chosen in range(1, 2 ** len(parts)):
        tasks = tuple(sorted((t for i, b in enumerate(parts) if chosen >> i & 1 for t in b), key=TASK_ORDER.index))
        if group_allowed(problem, tasks):
            found.append(tasks)
    return found


def order_matters(cells: Cells, vector: Vector, cut: Cut | None, rollout_tp: int, *, blocks: bool) -> bool:
    """Whether another order of the devices makes another layout: not where every machine holds whole replicas of one stage.

    ``blocks``: only orders that keep machines together are asked about. Others can spread a generation replica over machines.
    """
    if cut is not None and (cut.pp > 1 or (rollout_tp > cut.tp and not blocks)):
        return True
    whole = math.lcm(cut.tp if cut else 1, rollout_tp or 1)
    here: dict[int, int] = {}
    for machine, count in zip(cells.machine, vector, strict=True):
        here[machine] = here.get(machine, 0) + count
    mixed = sum(1 for n in here.values() if n) < sum(1 for n in vector if n)
    return mixed or any(n % whole for n in here.values())


def degrees(problem: Problem, tasks: tuple[str, ...], devices: int) -> Iterator[tuple[int, int, int, int]]:
    """Every legal (dp, pp, tp, rollout's tp) that uses all of so many devices: what leaves one out belongs to fewer devices.

    dp, pp and tp are 0 where only rollout runs, rollout's tp where it does not.
    """
    tps = [0]
    if "rollout" in tasks:
        replicas = problem.job.constraints.fix.get("rollout", {}).get("dp")
        legal = [1] if problem.engine.rollout.follows_actor else [t for t in rollout_tps(problem, devices) if devices % t == 0]
        tps = [t for t in legal if replicas in (None, devices // t) and devices // t <= problem.work.sequences]
    if tasks == ("rollout",):
        yield from ((0, 0, 0, tp) for tp in tps)
        return
    fixed = [problem.job.constraints.fix.get(t, {}) for t in tasks if t != "rollout"]  # type: ignore[call-overload]
    layers = min(problem.task(t).model.layers for t in tasks if t != "rollout")
    for tp in legal_tps(problem, tasks, min(devices, MOST_TP)):
        if devices % tp:
            continue
        for pp in (p for p in range(1, min(layers, devices // tp) + 1) if devices // tp % p == 0):
            dp = devices // tp // pp
            named = {"dp": dp, "pp": pp, "tp": tp}
            if problem.legal_dp(dp) and all(named[k] == v for f in fixed for k, v in f.items()):
                yield from ((dp, pp, tp, r) for r in tps)


def whole_cuts(problem: Problem, tasks: tuple[str, ...], devices: int) -> Iterator[tuple[Cut | None, int]]:
    """Every (cut, rollout's tp) of so many devices: the degrees with both arrangements and all bounds of the micro-batch."""
    micros = [problem.work.micro_batch_sequences, *smaller_micros(problem)]
    for dp, pp, tp, rollout_tp in degrees(problem, tasks, devices):
        if not dp:
            yield None, rollout_tp
            continue
        for column in (False, True) if pp > 1 and dp > 1 else (False,):
            yield from ((Cut(dp=dp, pp=pp, tp=tp, micro=micro, column=column), rollout_tp) for micro in micros)
