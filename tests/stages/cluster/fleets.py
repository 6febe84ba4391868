"""Small fleets of CPU devices, and what is running of Ray."""

from __future__ import annotations

import psutil

from artifacts.topology import ClusterRef, Device, Link, Machine, Measured, Topology
from artifacts.units import GIB

RATE = Measured(value=1e10, provenance="assumed")


def fleet(shape: dict[str, int], *, kind: str = "local", name: str = "bench", vendor: str = "cpu", cpus: int = 1, memory_bytes: int = 2 * GIB,
          dtypes: tuple[str, ...] = ("bf16", "fp16", "fp32"), **machine: object) -> Topology:
    """``shape``: machine → number of devices; device i of machine m is ``m-i``."""
    machines = [Machine(name=m, host_memory_bytes=GIB, cpus=cpus, **machine) for m in shape]  # type: ignore[arg-type]
    devices = [Device(id=f"{m}-{i}", machine=m, vendor=vendor, name="device", device_class="share", uuid=f"uuid-{m}-{i}",  # type: ignore[arg-type]
                      memory_bytes=memory_bytes, achieved_flops_per_s=RATE, memory_bandwidth_bytes_per_s=RATE, dtypes=list(dtypes))  # type: ignore[arg-type]
               for m, count in shape.items() for i in range(count)]
    links = [Link(source=a, target=b, latency_s=1e-5, bandwidth_bytes_per_s=1e9, provenance="assumed") for a in shape for b in shape]
    return Topology(cluster=ClusterRef(kind=kind, name=name), machines=machines, devices=devices, links=links)  # type: ignore[arg-type]


def ray_processes(root: int | None = None) -> set[int]:
    """Pids of Ray's servers and workers below ``root`` (default: anywhere on this host)."""
    found = set()
    for process in psutil.Process(root).children(recursive=True) if root else psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and ("ray::" in words or "raylet" in words or "gcs_server" in words):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found
