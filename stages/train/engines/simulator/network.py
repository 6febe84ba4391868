"""The links of a topology as resources that flows share.

Between two machines, one direction: the sender's port, the link of the pair, between regions the trunk, the receiver's port.
Inside a machine every pair of devices has the stated rate to itself, so nothing is shared there.

A topology states links machine by machine. From that: a port is as fast as its machine's fastest link. A trunk carries ``streams``
transfers at the rate of its fastest pair at once; by default one for every machine of the smaller region, because the rate between two
machines of different regions is what one connection reaches.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InfeasiblePlan
from artifacts.topology import Topology
from stages.train.engines.simulator.graph import Flow


class Network:
    """Ways between devices. Devices are indices into ``topology.devices``."""

    def __init__(self, topology: Topology, *, trunk_streams: int = 0) -> None:
        self._topology = topology
        machines = {m.name: i for i, m in enumerate(topology.machines)}
        self.machine = [machines[d.machine] for d in topology.devices]
        self._region = [m.region for m in topology.machines]
        self._links = {(machines[k.source], machines[k.target]): k for k in topology.links if k.probe != "failed"}
        self._capacity: list[float] = []
        self.names: list[str] = []
        self._out = self._ports("out of", 0)
        self._in = self._ports("into", 1)
        self._pair = {
            pair: self._resource(f"{self._name(pair[0])} → {self._name(pair[1])}", k.bandwidth_bytes_per_s)
            for pair, k in self._links.items() if pair[0] != pair[1]
        }
        self._trunk = self._trunks(trunk_streams)

    @cached_property
    def capacity(self) -> NDArray[np.float64]:
        """Bytes/s of every resource."""
        return np.array(self._capacity, dtype=np.float64)

    def flow(self, source: int, target: int, bytes_: float, *, steps: float = 1) -> Flow:
        """``steps`` transfers of together ``bytes_`` from a device to another.

        Raises:
            InfeasiblePlan: no usable link joins their machines.
        """
        a, b = self.machine[source], self.machine[target]
        latency, bandwidth = self.link(a, b)
        if a == b:
            return Flow(latency_s=steps * latency + bytes_ / bandwidth)
        return Flow(latency_s=steps * latency, bytes_=bytes_, route=self._route(a, b))

    def link(self, a: int, b: int) -> tuple[float, float]:
        """(latency s, bytes/s) from machine to machine, or inside one."""
        found = self._links.get((a, b))
        if found is None:
            raise InfeasiblePlan(f"the plan sends from machine {self._name(a)} to {self._name(b)}, which no usable link joins",
                                 fix="schedule again", details={"violations": [f"no link {self._name(a)} → {self._name(b)}"]})
        return found.latency_s, found.bandwidth_bytes_per_s

    def joined(self, a: int, b: int) -> bool:
        return (a, b) in self._links

    def _route(self, a: int, b: int) -> tuple[int, ...]:
        trunk = self._trunk.get((self._region[a], self._region[b]))
        return (self._out[a], self._pair[a, b], *(() if trunk is None else (trunk,)), self._in[b])

    def _resource(self, name: str, bytes_per_s: float) -> int:
        self._capacity.append(bytes_per_s)
        self.names.append(name)
        return len(self._capacity) - 1

    def _ports(self, word: str, end: int) -> dict[int, int]:
        fastest: dict[int, float] = {}
        for pair, link in self._links.items():
            if pair[0] != pair[1]:
                fastest[pair[end]] = max(fastest.get(pair[end], 0.0), link.bandwidth_bytes_per_s)
        return {m: self._resource(f"{word} {self._name(m)}", rate) for m, rate in fastest.items()}

    def _trunks(self, streams: int) -> dict[tuple[str, str], int]:
        size = Counter(self._region)
        fastest: dict[tuple[str, str], float] = {}
        for (a, b), link in self._links.items():
            ends = (self._region[a], self._region[b])
            if ends[0] != ends[1]:
                fastest[ends] = max(fastest.get(ends, 0.0), link.bandwidth_bytes_per_s)
        return {
            (x, y): self._resource(f"trunk {x} → {y}", rate * (streams or min(size[x], size[y]))) for (x, y), rate in fastest.items()
        }

    def _name(self, machine: int) -> str:
        return self._topology.machines[machine].name
