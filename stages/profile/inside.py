"""All-reduce among the devices of one machine, for each group size: how fast, and whether the sums are right."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from artifacts.topology import Link, Measured
from artifacts.units import show_rate
from stages.profile.devices.found import FoundDevice
from stages.profile.devices.visible import visible
from stages.profile.measure import START_S
from stages.profile.probes.launch import Probe, ProbeFailed

ALL_SIZES_TO = 8
"""Up to so many devices every group size is measured, beyond that powers of two and all."""
SUM_S = 20.0
CPU_BYTES, GPU_BYTES = 4 << 20, 64 << 20


@dataclass(frozen=True)
class Inside:
    """``bus_bytes_per_s``: group size → B/s that each device's link carries (2 (n − 1) / n of the data over the time of an all-reduce,
    the figure that does not depend on the size where the links are what bounds it). ``fault``: why there is none, or which sum was wrong.
    """

    backend: str = ""
    bus_bytes_per_s: dict[int, float] = field(default_factory=dict)
    spread: float = 0.0
    wrong: bool = False
    fault: str = ""

    @property
    def rates(self) -> dict[int, Measured]:
        """As the topology has them; none where a sum was wrong."""
        return {n: Measured(value=rate, provenance="measured", spread=self.spread, source=self.backend)
                for n, rate in self.bus_bytes_per_s.items()}

    @property
    def line(self) -> str:
        """For the person; "" where there was nothing to measure."""
        if self.fault:
            return f"all-reduce: {self.fault}"
        rates = ", ".join(f"{show_rate(rate)} with {size}" for size, rate in self.bus_bytes_per_s.items())
        return f"{rates} devices, ± {self.spread:.0%} ({self.backend}, sums right)" if rates else ""


def group_sizes(count: int) -> list[int]:
    if count <= ALL_SIZES_TO:
        return list(range(2, count + 1))
    return [*(2**n for n in range(1, count.bit_length()) if 2**n < count), count]


def reduce_inside(devices: Sequence[FoundDevice], *, address: str = "127.0.0.1", seconds: float) -> Inside:
    """One process a device, in groups of the first two, three, … of them; takes about ``seconds`` and the start of PyTorch.

    Without PyTorch, or with one device, there is nothing to measure.
    GPUs of one maker use NCCL (AMD's is called so too in PyTorch); a CPU's shares, and GPUs that it does not join (MIG instances, several
    makers), gloo through the host.
    """
    if len(devices) < 2 or find_spec("torch") is None:
        return Inside()
    backend, kind, size = joined_by(devices)
    sizes = group_sizes(len(devices))
    try:
        answers = _run(devices, ["--backend", backend, "--device", kind, "--bytes", str(size), "--host", address, "--master", address,
                                 "--world", str(len(devices)), "--seconds", f"{seconds / len(sizes):.3f}",
                                 "--sizes", *map(str, sizes)], within_s=SUM_S + 4 * seconds)
    except ProbeFailed as fault:
        return Inside(backend=backend, fault=str(fault))
    wrong = {g["size"] for answer in answers for g in answer["groups"] if g["wrong"]}
    if wrong:
        groups_named = " and ".join(map(str, sorted(wrong)))
        return Inside(backend=backend, wrong=True, fault=f"the sum is wrong with {groups_named} devices ({backend})")
    rates, spreads = {}, []
    for n in sizes:
        groups = [g for answer in answers for g in answer["groups"] if g["size"] == n]
        rates[n] = 2 * (n - 1) / n * groups[0]["bytes"] / statistics.median(g["quick_s"] for g in groups)
        spreads.append(max(g["spread"] for g in groups))
    return Inside(backend=backend, bus_bytes_per_s=rates, spread=max(spreads))


def joined_by(devices: Sequence[FoundDevice]) -> tuple[str, str, int]:
    """(backend, PyTorch's word for the devices, bytes to sum)."""
    makers = {d.vendor for d in devices}
    if makers in ({"nvidia"}, {"amd"}) and not any(d.parent for d in devices):
        return "nccl", "cuda", GPU_BYTES
    return "gloo", "cpu", CPU_BYTES


def inside_link(link: Link, inside: Inside) -> Link:
    """The link inside a machine, measured between two sockets, as the all-reduce showed it.

    GPUs do not talk over sockets: where NCCL joined them, two devices' all-reduce is the link (as in the catalogue's rates). A wrong sum
    must not be used.
    """
    if inside.wrong:
        return link.model_copy(update={"probe": "failed"})
    if inside.backend == "nccl" and 2 in inside.bus_bytes_per_s:
        return link.model_copy(update={"bandwidth_bytes_per_s": inside.bus_bytes_per_s[2]})
    return link


def _run(devices: Sequence[FoundDevice], arguments: list[str], *, within_s: float) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        probes = [stack.enter_context(Probe("collective", ["--rank", str(rank), *arguments], deadline_s=START_S + within_s,
                                            env={**visible(d, devices), "OMP_NUM_THREADS": "1"}))
                  for rank, d in enumerate(devices)]
        ready = [probe.read() for probe in probes]
        for probe in probes:
            probe.go(str(ready[0]["port"]), within_s=within_s)
        return [probe.read() for probe in probes]
