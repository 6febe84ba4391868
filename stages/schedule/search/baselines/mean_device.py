"""The fleet as a method for homogeneous clusters sees it: every device the mean one, every link the mean of its kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from artifacts.topology import ComputePoint, Device, Link, Measured, Topology
from stages.schedule.draft import Cut
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.construct import score
from stages.schedule.search.evaluator import Budget, Evaluator
from stages.schedule.search.space import cuts, draft_group, mask_of, rollout_tps
from stages.schedule.variant import evenly

Degrees = tuple[Cut | None, int]
"""A cut for the group's models (None: rollout only), and rollout's tensor-parallel degree (0: no rollout)."""


def mean_topology(topology: Topology) -> Topology:
    """The same machines and devices in the same places; rates and memory are means over all devices, links over their kind.

    The kinds of links are "inside a machine" and "between machines", as methods for homogeneous clusters know them. Links whose probe
    failed stay failed.
    """
    devices = topology.devices
    curve = _mean_curve(devices)
    host = [d.host_bandwidth_bytes_per_s.value for d in devices if d.host_bandwidth_bytes_per_s]
    mean: dict[str, object] = {
        "device_class": "mean",
        "memory_bytes": int(np.mean([d.memory_bytes for d in devices])),
        "achieved_flops_per_s": _mean(d.achieved_flops_per_s.value for d in devices),
        "compute_curve": curve,
        "memory_bandwidth_bytes_per_s": _mean(d.memory_bandwidth_bytes_per_s.value for d in devices),
        "host_bandwidth_bytes_per_s": _mean(host) if len(host) == len(devices) else None,
    }
    return topology.model_copy(
        update={
            "devices": [d.model_copy(update=mean) for d in devices],
            "links": [*_mean_links(topology.links, inside=True), *_mean_links(topology.links, inside=False)],
            "basis": {},
            "fingerprint": "",
        }
    )


def _mean(values: Iterable[float]) -> Measured:
    return Measured(value=float(np.mean(list(values))), provenance="assumed", source="mean over the fleet")


def _mean_curve(devices: Sequence[Device]) -> list[ComputePoint]:
    """Means at the sizes that were measured on every device."""
    tables = [{(p.width, p.tokens): p.flops_per_s for p in d.compute_curve} for d in devices]
    common = set(tables[0]).intersection(*tables[1:])
    return [ComputePoint(tokens=t, width=w, flops_per_s=float(np.mean([table[w, t] for table in tables]))) for w, t in sorted(common)]


def _mean_links(links: Sequence[Link], *, inside: bool) -> list[Link]:
    kind = [k for k in links if (k.source == k.target) == inside]
    good = [k for k in kind if k.probe != "failed"]
    if not good:
        return kind
    latency, bandwidth = float(np.mean([k.latency_s for k in good])), float(np.mean([k.bandwidth_bytes_per_s for k in good]))
    return [
        k
        if k.probe == "failed"
        else k.model_copy(update={"latency_s": latency, "bandwidth_bytes_per_s": bandwidth, "provenance": "assumed"})
        for k in kind
    ]


class MeanDegrees:
    """Ranks the degrees of a group by what they would take if every device were the mean one. Charged to ``evaluator``'s budget."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._charged = evaluator
        known = evaluator.problem
        self._mean = Evaluator(evenly(build_problem(known.job, mean_topology(known.topology))), Budget(evaluations=10**12))
        self._memo: dict[tuple[tuple[str, ...], int], list[Degrees]] = {}

    def ranked(self, tasks: tuple[str, ...], size: int) -> list[Degrees]:
        """Degrees of ``tasks`` on the first ``size`` devices in rank order, best first; those that do not fit the mean memory last."""
        found = self._memo.get((tasks, size))
        if found is None:
            found = self._memo[tasks, size] = self._rank(tasks, size)
        return found

    def _rank(self, tasks: tuple[str, ...], size: int) -> list[Degrees]:
        problem = self._mean.problem
        devices = tuple(int(d) for d in np.flatnonzero(mask_of(problem, tasks))[:size])
        before = self._mean.evaluations
        priced = []
        for number, (cut, tp) in enumerate(degrees_of(problem, tasks, devices)):
            price = self._mean.group(draft_group(problem, tasks, devices, cut, tp))
            if price is not None:
                priced.append((score(price), number, (cut, tp)))
        self._charged.evaluations += self._mean.evaluations - before
        return [degrees for _, _, degrees in sorted(priced, key=lambda p: p[:2])]


def degrees_of(problem: Problem, tasks: tuple[str, ...], devices: tuple[int, ...]) -> list[Degrees]:
    """Every cut of these devices (smaller micro-batches included) with every degree rollout may have."""
    tps = rollout_tps(problem, len(devices)) if "rollout" in tasks else [0]
    if "rollout" in tasks and problem.engine.rollout.follows_actor:
        tps = [1]
    choices: Sequence[Cut | None] = [None] if tasks == ("rollout",) else cuts(problem, tasks, devices, thorough=True)
    return [(cut, tp) for cut in choices for tp in tps]
