"""Small described fleets and hand-made drafts for the tests of the profile stage."""

from __future__ import annotations

from dataclasses import replace

from artifacts.topology import ClusterRef, Device, Link, Machine, Measured
from stages.profile.draft import Draft

PAIR = """
name: pair
machines:
  - {name: a, region: east, gpus: [{gpu: A100-SXM4-80GB, count: 2}], host_memory_gib: 512, cpus: 64}
  - {name: b, region: west, gpus: [{gpu: L4, count: 4, price_per_hour: 0.5}], host_memory_gib: 128, cpus: 32}
links:
  regions:
    - {between: [east, west], latency_ms: 30, bandwidth_gbit_per_s: 2}
"""


def device(name: str, machine: str, *, device_class: str = "A100", flops: float = 2e14, memory_gib: int = 40) -> Device:
    return Device(id=name, machine=machine, vendor="nvidia", name=device_class, device_class=device_class, uuid=f"GPU-{name}",
                  memory_bytes=memory_gib * 2**30, achieved_flops_per_s=Measured(value=flops, provenance="measured", spread=0.02),
                  memory_bandwidth_bytes_per_s=Measured(value=1.4e12, provenance="measured"))


def link(source: str, target: str, *, gbit: float = 10.0, ms: float = 5.0, probe: str = "ok") -> Link:
    return Link(source=source, target=target, latency_s=ms / 1e3, bandwidth_bytes_per_s=gbit * 1e9 / 8, provenance="measured", probe=probe)


def live_draft(*, machines: int = 3, flops: float = 2e14, gbit: float = 10.0, ms: float = 5.0) -> Draft:
    """``machines`` measured machines of two A100 each, all in one network."""
    names = [f"m{i}" for i in range(machines)]
    return Draft(
        cluster=ClusterRef(kind="ray", name="live"),
        machines=tuple(Machine(name=n, host_memory_bytes=2**38, cpus=64) for n in names),
        devices=tuple(device(f"{n}.gpu-{i}", n, flops=flops) for n in names for i in range(2)),
        links=tuple(link(a, b, gbit=gbit, ms=ms) if a != b else link(a, a, gbit=1600, ms=0.01) for a in names for b in names),
    )


def without_device(draft: Draft, name: str) -> Draft:
    return replace(draft, devices=tuple(d for d in draft.devices if d.id != name))


def without_machine(draft: Draft, name: str) -> Draft:
    return replace(draft, machines=tuple(m for m in draft.machines if m.name != name),
                   devices=tuple(d for d in draft.devices if d.machine != name),
                   links=tuple(k for k in draft.links if name not in (k.source, k.target)))


def with_link(draft: Draft, changed: Link) -> Draft:
    return replace(draft, links=tuple(changed if (k.source, k.target) == (changed.source, changed.target) else k for k in draft.links))
