"""Activities and what each waits for: built in program order, then played."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.train.engines.simulator.events import play

MOST_HOPS = 4
"""Resources one flow passes over: the sender's port, the link, the trunk, the receiver's port."""


@dataclass(frozen=True)
class Flow:
    """Bytes from one device to another. Without a route it only takes its latency (nothing to share)."""

    latency_s: float
    bytes_: float = 0.0
    route: tuple[int, ...] = ()


@dataclass(frozen=True)
class Label:
    """What an activity is, for logs and pictures: task, what of it, batch number, replica (−1: none)."""

    task: str
    what: str
    batch: int
    replica: int = -1


@dataclass(frozen=True, eq=False)
class Played:
    """When everything happened. ``start``, ``end`` are ``[A]`` seconds; ``rates`` has (time, flow, bytes/s) of every change if recorded."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    events: int
    rates: list[tuple[float, int, float]]


@dataclass(eq=False)
class Graph:
    """Activities in the order in which they were added. A device does one at a time, in this order."""

    capacity: NDArray[np.float64]
    labels: list[Label] = field(default_factory=list)
    devices: list[tuple[int, ...]] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    busy_s: list[float] = field(default_factory=list)
    flows: list[tuple[Flow, ...]] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    _last: dict[int, int] = field(default_factory=dict)

    def add(
        self,
        label: Label,
        devices: tuple[int, ...],
        *,
        busy_s: float = 0.0,
        rounds: int = 1,
        flows: Sequence[Flow] = (),
        after: Iterable[int] = (),
    ) -> int:
        """An activity that holds ``devices``, after what was added for any of them before and after the activities in ``after``."""
        number = len(self.labels)
        before = {self._last[d] for d in devices if d in self._last}
        before.update(after)
        for d in devices:
            self._last[d] = number
        self.labels.append(label)
        self.devices.append(devices)
        self.rounds.append(rounds if flows else 1)
        self.busy_s.append(busy_s if flows else busy_s * rounds)
        self.flows.append(tuple(flows))
        self.after.append(tuple(sorted(before)))
        return number

    def play(self, *, record: bool = False) -> Played:
        """Play all of it, from time 0."""
        count = len(self.labels)
        flows = [f for bundle in self.flows for f in bundle]
        route = np.full((len(flows), MOST_HOPS), -1, dtype=np.int64)
        for i, flow in enumerate(flows):
            route[i, : len(flow.route)] = flow.route
        edges = [(b, i) for i, before in enumerate(self.after) for b in before]
        first_next, next_ = _grouped(np.array(edges, dtype=np.int64).reshape(-1, 2), count)
        start, end, events, rates = play(
            np.array(self.rounds, dtype=np.int64),
            np.array(self.busy_s, dtype=np.float64),
            _offsets([len(bundle) for bundle in self.flows]),
            np.array([f.latency_s for f in flows], dtype=np.float64),
            np.array([f.bytes_ for f in flows], dtype=np.float64),
            route,
            self.capacity,
            np.array([len(before) for before in self.after], dtype=np.int64),
            first_next,
            next_,
            record,
        )
        if count and float(end.min()) < 0.0:
            stuck = self.labels[int(end.argmin())]
            raise AssertionError(f"{stuck.what} of {stuck.task} never ended: the activities wait for each other")
        return Played(start=start, end=end, events=int(events), rates=[(float(t), int(f), float(r)) for t, f, r in rates])


def _offsets(counts: list[int]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(np.array(counts, dtype=np.int64)))).astype(np.int64)


def _grouped(edges: Any, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(first, next): the successors of each activity in one array, where each one's begin."""
    ordered = edges[np.argsort(edges[:, 0], kind="stable")]
    first = np.searchsorted(ordered[:, 0], np.arange(count + 1)).astype(np.int64)
    return first, np.ascontiguousarray(ordered[:, 1])
