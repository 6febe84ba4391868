"""From a problem to the rules the compiled search keeps; between drafts and its states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.schedule.cost.kernel.arrays import Ints
from stages.schedule.cost.tables import build_ledger, compiled, empty_flat
from stages.schedule.draft import Cut, Draft
from stages.schedule.problem import Problem
from stages.schedule.search.auto.arrays import COLUMN, COUNTS, DP, HOLDER, MICRO, PP, SHARDS, SIZE, TP, Bench, Rules, State
from stages.schedule.search.auto.kernel_chain import MOVES
from stages.schedule.search.space import TASK_ORDER, bundles, draft_group, group_allowed, groupings, legal_tps, mask_of, rollout_tps

MOST_TP = 16
SMALL = 32
"""Devices up to which a fleet is searched by small moves only."""


def tasks_of(problem: Problem, mask: int) -> tuple[str, ...]:
    """Tasks of a mask of bundles, in the usual order."""
    return tuple(sorted((t for i, b in enumerate(bundles(problem)) if mask >> i & 1 for t in b), key=TASK_ORDER.index))


def masks_of(problem: Problem) -> list[tuple[int, ...]]:
    """Groupings as masks of bundles."""
    first = [b[0] for b in bundles(problem)]
    return [tuple(sum(1 << i for i, t in enumerate(first) if t in group) for group in grouping) for grouping in groupings(problem)]


def build_rules(problem: Problem, orders: Sequence[Ints]) -> Rules:
    """The rules of a problem, and ``orders`` of all its devices. Made once a search."""
    parts, size, work = bundles(problem), problem.fleet.size, problem.work
    index = {t: i for i, b in enumerate(parts) for t in b}
    count, most = 1 << len(parts), _largest_tp(problem)
    rows: list[list[int]] = [[0] * 6]
    admits = np.zeros((count, size), dtype=bool)
    for mask in range(1, count):
        admits[mask] = mask_of(problem, tasks_of(problem, mask))
        rows.append(_row(problem, tasks_of(problem, mask), most))
    degrees = [1] if problem.engine.rollout.follows_actor else rollout_tps(problem, most)
    rows.append([1, 1, 0, 0, 0, len(degrees), *degrees])
    masks = np.zeros((count + 1, max(len(r) for r in rows)), dtype=np.int64)
    for mask, row in enumerate(rows):
        masks[mask, : len(row)] = row
    kind = problem.fleet.device_class * len(problem.fleet.regions) + problem.fleet.region
    fixed_rollout = problem.job.constraints.fix.get("rollout", {}).get("dp", 0)
    owners = [index[t.name] for t in problem.tasks]
    return Rules(
        masks=masks,
        admits=admits,
        dps=np.array([problem.legal_dp(d) and d <= work.mini_batch_sequences for d in range(size + 1)]),
        devices=np.array([homes(problem), kind, problem.fleet.region, *orders], dtype=np.int64),
        misc=np.array([fixed_rollout, work.micro_batch_sequences, work.mini_batch_sequences, int(wide(problem)), *owners]),
    )


def wide(problem: Problem) -> bool:
    """Whether the fleet is too large for the search to get everywhere by small moves: on fewer devices larger ones lead it astray."""
    return problem.fleet.size > SMALL


def homes(problem: Problem) -> Ints:
    """What the search moves devices by: their machines; single devices alike in class, region, links and what may run on them are one."""
    fleet, seen = problem.fleet, dict[tuple[object, ...], int]()
    alone = np.bincount(fleet.machine, minlength=len(fleet.machines)) == 1
    found = np.empty(fleet.size, dtype=np.int64)
    for d, m in enumerate(fleet.machine.tolist()):
        key: tuple[object, ...] = (m,)
        if alone[m] and wide(problem):
            matrices = (fleet.machine_latency_s, fleet.machine_inverse_bandwidth)
            links = (np.sort(a).round(12).tobytes() for n in matrices for a in (n[m], n[:, m]))
            allowed = (bool(a[d]) for a in problem.allowed.values())
            key = (int(fleet.region[d]), int(fleet.device_class[d]), bool(problem.usable[d]), *allowed, *links)
        found[d] = seen.setdefault(key, len(seen))
    return found


def _row(problem: Problem, tasks: tuple[str, ...], most: int) -> list[int]:
    models = [t for t in tasks if t != "rollout"]
    fixed = [_fixed(problem, models, degree) for degree in ("dp", "pp")]
    degrees = legal_tps(problem, tasks, most) if models else []
    legal = group_allowed(problem, tasks) and all(len(f) < 2 for f in fixed) and (bool(degrees) or not models)
    layers = min((problem.task(t).model.layers for t in models), default=0)
    return [int(legal), int("rollout" in tasks), layers, *(max(f, default=0) for f in fixed), len(degrees), *degrees]


def _fixed(problem: Problem, tasks: list[str], degree: str) -> set[int]:
    fix = problem.job.constraints.fix
    return {fix[t][degree] for t in tasks if degree in fix.get(t, {})}  # type: ignore[call-overload,index]


def _largest_tp(problem: Problem) -> int:
    """Devices of the largest machine; where machines hold one each, a shard may be a machine away."""
    machine = problem.fleet.machine
    most = int(np.bincount(machine).max())
    return min(most if most > 1 else len(machine), MOST_TP)


def empty_state(groups: int, size: int) -> State:
    meta = np.zeros((groups + 1, HOLDER + 1), dtype=np.int64)
    meta[:, HOLDER] = -1
    return State(order=np.zeros((groups + 1, size), dtype=np.int64), meta=meta)


def copied(state: State) -> State:
    return State(*(a.copy() for a in state))


def build_bench(problem: Problem, *, seed: int, state: State | None = None, history: int = 1) -> Bench:
    """Working memory for one thread, on a plan (or none)."""
    tables = compiled(problem).tables
    t, d, groups = len(tables.task), len(tables.dev), len(bundles(problem))
    start = copied(state) if state else empty_state(groups, d)
    sums = np.zeros(COUNTS + 2 * len(MOVES))
    sums[:2] = np.inf
    return Bench(
        flat=empty_flat(tables),
        ledger=build_ledger(tables),
        state=start,
        saved=empty_state(groups, d),
        best=copied(start),
        saved_flat=empty_flat(tables),
        saved_prices=np.zeros((t + 2, max(d, 4 * t))),
        scratch=np.zeros((6, max(d, SIZE + 1)), dtype=np.int64),
        random=np.array([(seed + 1) * 0x9E3779B97F4A7C15 % 2**64 | 1], dtype=np.uint64),
        sums=sums,
        history=np.full(history, np.inf),
    )


def state_of(problem: Problem, draft: Draft) -> State:
    """A draft as a state; devices in no group, and that some task may use, are idle."""
    parts, size = bundles(problem), problem.fleet.size
    state = empty_state(len(parts), size)
    for g, group in enumerate(draft.groups):
        cut = group.cut
        shape = (cut.dp, cut.pp, cut.tp, cut.micro, int(cut.column)) if cut else (0, 0, 0, 0, 0)
        state.order[g, : len(group.devices)] = group.devices
        state.meta[g, :HOLDER] = (*shape, group.rollout_tp, len(group.devices))
        for b, bundle in enumerate(parts):
            if bundle[0] in group.tasks:
                state.meta[b, HOLDER] = g
    leave_idle(problem, state)
    return state


def leave_idle(problem: Problem, state: State) -> None:
    """Put the usable devices that are in no group into the idle row."""
    used = {int(d) for g in range(len(state.meta) - 1) for d in state.order[g, : state.meta[g, SIZE]]}
    idle = [d for d in np.flatnonzero(problem.usable).tolist() if d not in used]
    state.order[-1, : len(idle)] = idle
    state.meta[-1, SIZE] = len(idle)


def draft_of(problem: Problem, state: State) -> Draft:
    """A state as a draft, its groups in the order of their first tasks."""
    holders = state.meta[:-1, HOLDER]
    groups = []
    for g in dict.fromkeys(holders.tolist()):
        mask = sum(1 << b for b in np.flatnonzero(holders == g).tolist())
        c = state.meta[g].tolist()
        cut = Cut(dp=c[DP], pp=c[PP], tp=c[TP], micro=c[MICRO], column=bool(c[COLUMN])) if c[DP] else None
        groups.append(draft_group(problem, tasks_of(problem, mask), tuple(state.order[g, : c[SIZE]].tolist()), cut, c[SHARDS]))
    return Draft(groups=tuple(groups))
