"""Why the plan is as it is: a sentence for every group and for every device left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from artifacts.units import show_seconds
from stages.schedule.cost.iteration import GroupPrice, PlanPrice
from stages.schedule.documents import group_name
from stages.schedule.draft import Draft, GroupDraft
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem
from stages.schedule.search.construct import best_group
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.space import bundles, mask_of
from stages.schedule.variant import without_limit

SAME = 1e-3
"""Relative difference of two iteration times that is not worth a word."""
CUTS_TRIED, CUTS_TRIED_ON_LARGE_FLEETS, LARGE_FLEET = 20, 10, 128


def group_reasons(problem: Problem, price: PlanPrice) -> dict[str, str]:
    """One sentence a group: what it runs on what, how cut, and where its time goes."""
    return {group_name(g.tasks): _group_reason(problem, price, g) for g in price.groups}


def _group_reason(problem: Problem, price: PlanPrice, group: GroupPrice) -> str:
    fleet = problem.fleet
    kinds = Counter(fleet.classes[c] for c in fleet.device_class[group.memory.devices])
    machines = sorted({fleet.machines[m] for m in fleet.machine[group.memory.devices]})
    on = ", ".join(f"{n} × {k}" for k, n in sorted(kinds.items()))
    where = ", ".join(machines[:4]) + (f" and {len(machines) - 4} more machines" if len(machines) > 4 else "")
    total = sum(p.time_s for p in group.prices.values())
    slowest = max(group.prices, key=lambda name: group.prices[name].time_s)
    term = max(group.prices[slowest].terms, key=lambda t: group.prices[slowest].terms[t])
    share = group.prices[slowest].time_s / price.iteration_s
    cuts = "; ".join(dict.fromkeys(_cut(name, layout) for name, layout in group.layouts.items()))
    return (
        f"{_together(problem, group)} on {on} ({where}); {cuts}. Busy {show_seconds(total)} of {show_seconds(price.iteration_s)}; "
        f"{_words(slowest)} takes {share:.0%} of the iteration, mostly {term}."
    )


def _cut(name: str, layout: object) -> str:
    dp, pp, tp = layout.dp, layout.pp, layout.tp  # type: ignore[attr-defined]
    what = "rollout" if name == "rollout" else "models" if name in ("actor_training", "reference_inference") else _words(name)
    text = f"{what}: {dp} replica{'s' if dp > 1 else ''} × {pp} stage{'s' if pp > 1 else ''} × {tp} shard{'s' if tp > 1 else ''}"
    layers, local = layout.layers, layout.local  # type: ignore[attr-defined]
    if len(set(layers)) > 1:
        text += f", layers {'|'.join(map(str, layers))} by stage speed"
    if len(set(local)) > 1:
        shown = "|".join(map(str, local)) if len(local) <= 8 else f"{min(local)} to {max(local)}"
        text += f", sequences {shown} by replica speed"
    return text


def _together(problem: Problem, group: GroupPrice) -> str:
    named = [_words(t) for t in group.tasks]
    listed = ", ".join(named[:-1]) + (" and " if len(named) > 1 else "") + named[-1]
    return listed[0].upper() + listed[1:] + (" take turns" if len(named) > 1 else " runs alone")


def _words(task: str) -> str:
    return task.replace("_", " ")


def settle_idle(evaluator: Evaluator) -> dict[str, str]:
    """Try to put what the best plan leaves idle to use, until that gains nothing; then say of each idle device why it is idle.

    The evaluator's best plan may change. Devices of one class in one region share an answer.
    """
    while True:
        draft, price = evaluator.best_draft, evaluator.best
        if draft is None or price is None:
            return {}
        reasons = idle_reasons(evaluator, draft, price)
        if evaluator.best is price:
            return reasons


def idle_reasons(evaluator: Evaluator, draft: Draft, price: PlanPrice) -> dict[str, str]:
    """Why a plan leaves devices idle: device id → what it would take with them. The evaluator's best plan may change."""
    problem, fleet = evaluator.problem, evaluator.problem.fleet
    used = {int(d) for g in price.groups for d in g.memory.devices}
    draft = Draft(groups=tuple(replace(g, devices=tuple(d for d in g.devices if d in used)) for g in draft.groups))
    found: dict[str, str] = {}
    kinds: dict[tuple[int, int], dict[int, list[int]]] = {}
    for d in range(fleet.size):
        device = fleet.devices[d]
        if d in used:
            continue
        if device.id in problem.excluded:
            found[device.id] = problem.excluded[device.id]
        else:
            kinds.setdefault((int(fleet.device_class[d]), int(fleet.region[d])), {}).setdefault(int(fleet.machine[d]), []).append(d)
    full = len(used) >= problem.most_devices
    trial = Evaluator(without_limit(problem), evaluator.budget) if full and kinds else evaluator
    for by_machine in kinds.values():
        reason = _with_them(trial, draft, price, max(by_machine.values(), key=len))
        reason = f"{limit_reason(problem)}; {reason}" if full else reason
        found.update({fleet.devices[d].id: reason for mates in by_machine.values() for d in mates})
    return found


def _with_them(evaluator: Evaluator, draft: Draft, price: PlanPrice, devices: list[int]) -> str:
    """Add a machine's idle devices to each group that admits them, cut anew, or give them some of its tasks; say what that would cost."""
    problem = evaluator.problem
    most = CUTS_TRIED if problem.fleet.size <= LARGE_FLEET else CUTS_TRIED_ON_LARGE_FLEETS
    count = f"{len(devices)} device{'s' if len(devices) > 1 else ''} of {problem.fleet.devices[devices[0]].machine}"
    others = sorted(draft.used)
    if (problem.fleet.latency_s[np.ix_(devices, others)] >= UNUSABLE_S).all():
        return f"no usable link joins the {count} to the others"
    seen = []
    for g, group in enumerate(draft.groups):
        mine = [d for d in devices if mask_of(problem, group.tasks)[d]]
        if not mine:
            continue
        kept = tuple(d for d in group.devices if d not in mine)
        tried: list[list[GroupDraft | None]] = []
        for order in ((*kept, *mine), (*mine, *kept)):
            made = best_group(evaluator, group.tasks, order, most=most)
            tried.append([made])
        for tasks in bundles(problem):
            rest = tuple(t for t in group.tasks if t not in tasks)
            if rest and len(rest) < len(group.tasks) and mask_of(problem, tasks)[mine].all():
                tried.append([best_group(evaluator, rest, group.devices, most=most), best_group(evaluator, tasks, tuple(mine), most=most)])
        for groups in tried:
            made_all = [made for made in groups if made is not None]
            changed = evaluator.plan(Draft(groups=(*draft.groups[:g], *made_all, *draft.groups[g + 1 :]))) if made_all == groups else None
            if changed is not None and set(mine) & {int(d) for p in changed.groups for d in p.memory.devices}:
                seen.append(changed.cost)
    if evaluator.best_full is not None:
        seen.append(evaluator.best_full)
    if not seen:
        rule = f" (replicas must divide the batch of {problem.work.sequences} sequences)" if problem.engine.dp_divides else ""
        return f"no group can be cut so that it uses the {count}{rule}"
    best = min(seen)
    if best >= 2 * UNUSABLE_S:
        return f"the plans tried with the {count} do not fit in memory"
    if best >= UNUSABLE_S:
        return f"no usable link joins the {count} to the others"
    change = best / price.iteration_s - 1
    word = "slower" if change > SAME else "faster" if change < -SAME else "no faster"
    return f"{word} with the {count}: {show_seconds(best)} an iteration against {show_seconds(price.iteration_s)} without"


def limit_reason(problem: Problem) -> str:
    most = problem.most_devices
    return f"constraints.max_devices allows {most} device{'s' if most > 1 else ''}"
