"""What runs on a node of the cluster: it probes its machine, and its links to others, each probe in a process of its own.

A probe that fails is an answer here, ``{"fault": why}``: one bad link must not cost the agent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from stages.profile.devices.found import FoundDevice
from stages.profile.host import this_host
from stages.profile.inside import reduce_inside
from stages.profile.measure import find_devices, measure_devices
from stages.profile.probes.launch import Probe, ProbeFailed

Answer = dict[str, Any]


class Agent:
    """An actor pinned to a node. ``name``: of its machine; ``address``: of its node, which is where it listens and connects from."""

    def __init__(self, name: str, address: str) -> None:
        self._name, self._address = name, address
        self._server: Probe | None = None
        self._rank: Probe | None = None

    def look(self, *, identity: str, shares: int | None) -> Answer:
        """The host and its devices: its GPUs, or with ``shares`` (and where it has none) its CPU in shares. ``identity``: what CPU shares
        are called after; "": the host's own id and the machine's name, as several nodes may be on one host."""
        host = this_host(self._name)
        finding = find_devices(replace(host, identity=identity or f"{host.identity}/{host.name}"), shares=shares)
        return {"cores": host.cores, "memory_bytes": host.memory_bytes, "devices": [asdict(d) for d in finding.devices],
                "notes": list(finding.notes)}

    def measure(self, devices: list[Answer], *, seconds: float) -> Answer:
        """Answers and faults of the device probes, by index."""
        result = measure_devices(tuple(FoundDevice.of(d) for d in devices), seconds=seconds)
        return {"answers": {str(k): v for k, v in result.answers.items()}, "faults": {str(k): v for k, v in result.faults.items()}}

    def reduce_inside(self, devices: list[Answer], *, seconds: float) -> Answer:
        """The all-reduce among the machine's own devices, as ``Inside``'s fields."""
        return asdict(reduce_inside([FoundDevice.of(d) for d in devices], address=self._address, seconds=seconds))

    def serve(self, *, deadline_s: float) -> Answer:
        """Answer every other agent's messages from now on; the port."""
        self._server = Probe("network", ["--serve", "--all", "--host", self._address], deadline_s=deadline_s)
        try:
            return self._server.read()
        except ProbeFailed as fault:
            return {"fault": str(fault)}

    def connect(self, address: str, port: int, *, seconds: float, largest: int, deadline_s: float) -> Answer:
        """Latency to a machine, and bandwidth where ``largest`` (bytes) allows more than the smallest message."""
        try:
            with Probe("network", ["--host", address, "--port", str(port), "--seconds", f"{seconds:.3f}", "--largest", str(largest)],
                       deadline_s=deadline_s) as probe:
                probe.read()
                probe.go()
                return probe.read()
        except ProbeFailed as fault:
            return {"fault": str(fault)}

    def join(self, *, rank: int, world: int, master: str, deadline_s: float) -> Answer:
        """Get ready for an all-reduce of ``world`` machines; rank 0 answers with the port of its store."""
        self.leave()
        self._rank = Probe("collective", ["--rank", str(rank), "--world", str(world), "--host", self._address, "--master", master],
                           deadline_s=deadline_s)
        return self._read_rank()

    def reduce(self, port: int, *, deadline_s: float) -> Answer:
        """The all-reduce this agent has joined; rank 0's store listens at ``port``."""
        if self._rank is None:
            return {"fault": "it had not joined"}
        self._rank.go(str(port), within_s=deadline_s)
        answer = self._read_rank()
        self.leave()
        return answer

    def leave(self) -> None:
        if self._rank is not None:
            self._rank.close()
            self._rank = None

    def close(self) -> None:
        with suppress(ProbeFailed):
            self.leave()
            if self._server is not None:
                self._server.close()

    def _read_rank(self) -> Answer:
        assert self._rank is not None
        try:
            return self._rank.read()
        except ProbeFailed as fault:
            self.leave()
            return {"fault": str(fault)}
