"""Which input matters most: how much shorter or longer the iteration gets when one number changes by a tenth and the plan stays.

Rates and bandwidths are made a tenth higher, latencies and lengths a tenth longer; so the answer for a rate is what a tenth more of it
gains.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.cost.kernel.arrays import Tables
from stages.schedule.cost.kernel.price import price_plan
from stages.schedule.cost.tables import build_ledger, compiled, flat_plan
from stages.schedule.problem import Problem

CHANGE = 1.1
SMALLEST = 1e-4
"""Relative changes below this are left out."""


def sensitivities(problem: Problem, price: PlanPrice) -> dict[str, float]:
    """Input → relative change of the iteration time when it is a tenth higher, the strongest first."""
    tables = compiled(problem).tables
    flat, groups = flat_plan(problem, [g.layouts for g in price.groups]), len(price.groups)
    ledger = build_ledger(tables)

    def seconds(changed: Tables) -> float:
        return float(price_plan(changed, flat, ledger, groups))

    before = seconds(tables)
    found = {name: seconds(changed) / before - 1.0 for name, changed in _changes(problem, tables, price)}
    return dict(sorted(((n, c) for n, c in found.items() if abs(c) >= SMALLEST), key=lambda item: -abs(item[1])))


def _changes(problem: Problem, tables: Tables, price: PlanPrice) -> Iterator[tuple[str, Tables]]:
    fleet = problem.fleet
    used = np.unique(np.concatenate([g.memory.devices for g in price.groups]))
    for c in np.unique(fleet.device_class[used]):
        name = fleet.classes[c]
        curve = tables.curve.copy()
        curve["rate"][:, :, c] += np.log(CHANGE)
        dev = tables.dev.copy()
        dev["best"][fleet.device_class == c] *= CHANGE
        yield f"compute rate of {name}", tables._replace(curve=curve, dev=dev)
        dev = tables.dev.copy()
        dev["hbm"][fleet.device_class == c] *= CHANGE
        yield f"memory rate of {name}", tables._replace(dev=dev)
        dev = tables.dev.copy()
        dev["usable"][fleet.device_class == c] *= CHANGE
        yield f"memory of {name}", tables._replace(dev=dev)
    yield from _links(problem, tables, used)
    yield from _lengths(tables)
    job = tables.job.copy()
    for name in ("launch", "launch_token", "step_gap", "step_each", "step_layer", "export", "gather"):
        job[name] *= CHANGE
    yield "time of the host at launches, decode steps and weight updates", tables._replace(job=job)


def _links(problem: Problem, tables: Tables, used: np.ndarray) -> Iterator[tuple[str, Tables]]:
    """Links inside machines by the machine's devices, and between machines by their regions."""
    fleet = problem.fleet
    machines = sorted({int(fleet.machine[d]) for d in used})
    region = {m: fleet.regions[int(fleet.region[fleet.machine == m][0])] for m in machines}
    classes = {m: "+".join(sorted({fleet.classes[int(c)] for c in fleet.device_class[fleet.machine == m]})) for m in machines}
    kinds: dict[str, list[tuple[int, int]]] = {}
    for a in machines:
        for b in machines:
            between = " – ".join(sorted({region[a], region[b]}))
            where = f"inside machines of {classes[a]}" if a == b else f"between machines{f' of {between}' if between else ''}"
            kinds.setdefault(where, []).append((a, b))
    for where, pairs in kinds.items():
        at = tuple(np.array(pairs).T)
        for what, name, factor in (("inverse", "bandwidth", 1 / CHANGE), ("latency", "latency", CHANGE)):
            net = tables.net.copy()
            net[what][at] *= factor
            yield f"{name} {where}", tables._replace(net=net)


def _lengths(tables: Tables) -> Iterator[tuple[str, Tables]]:
    job, node = tables.job.copy(), tables.node.copy()
    job["tokens"] += (CHANGE - 1) * job["response_mean"]
    for name in ("response_mean", "response_age"):
        job[name] *= CHANGE
    for name in ("tokens", "weight"):
        node[name] *= CHANGE
    yield "length of responses", tables._replace(job=job, node=node)
    job = tables.job.copy()
    job["tokens"] += (CHANGE - 1) * job["prompt_mean"]
    job["prompt_mean"] *= CHANGE
    yield "length of prompts", tables._replace(job=job)
