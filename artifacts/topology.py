"""The fleet as profiled: machines, devices, links, who could not be reached; and the fingerprint a plan is bound to."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from artifacts.base import Bytes, Document, Name, Rate, Seconds, Strict, digest

Provenance = Literal["measured", "calibrated", "spec", "assumed"]
Dtype = Literal["bf16", "fp16", "fp32"]


class Measured(Strict):
    """A number and where it came from. ``spread`` is the relative half-range over repetitions, where measured."""

    value: Rate
    provenance: Provenance
    spread: float = Field(default=0.0, ge=0)
    source: str = ""


class ComputePoint(Strict):
    """Achieved matmul rate at one size: ``tokens`` rows of activations against square weights of ``width``."""

    tokens: int = Field(ge=1)
    width: int = Field(ge=1)
    flops_per_s: Rate
    spread: float = Field(default=0.0, ge=0)


class Device(Strict):
    """One accelerator (or one CPU share that stands for one)."""

    id: Name = Field(description="unique in the topology")
    machine: Name
    vendor: Literal["nvidia", "amd", "cpu"]
    name: str = Field(min_length=1, max_length=200, description="as the driver reports it")
    device_class: Name = Field(description="devices of one class are interchangeable but for where they sit")
    uuid: str = Field(min_length=1, max_length=200)
    memory_bytes: Bytes = Field(description="usable, as found")
    peak_flops_per_s: Measured | None = Field(default=None, description="dense, at the job's 16-bit precision; None: unknown")
    achieved_flops_per_s: Measured
    compute_curve: list[ComputePoint] = Field(default_factory=list, description="by size, ascending tokens; empty: only the rate above")
    memory_bandwidth_bytes_per_s: Measured
    host_bandwidth_bytes_per_s: Measured | None = Field(default=None, description="host to device, one direction")
    to_host_bandwidth_bytes_per_s: Measured | None = Field(default=None, description="device to host; None: unknown, or a CPU's own memory")
    compute_capability: str = ""
    dtypes: list[Dtype] = Field(default=["bf16", "fp16", "fp32"])
    mig_parent: str = ""
    price_per_hour: float | None = Field(default=None, ge=0)
    cores: int = Field(default=0, ge=0, description="CPU devices: cores it may use")


class Machine(Strict):
    name: Name
    zone: str = ""
    region: str = ""
    host_memory_bytes: Bytes
    cpus: int = Field(ge=1)
    ray_node_id: str = ""
    address: str = ""
    allreduce_bytes_per_s: dict[int, Measured] = Field(
        default_factory=dict, description="among its own devices: group size → bus bandwidth, 2 (n − 1) / n of the data over its time"
    )


class Link(Strict):
    """One direction between two machines, or (``source == target``) between devices inside a machine."""

    source: Name
    target: Name
    latency_s: Seconds = Field(description="one way")
    bandwidth_bytes_per_s: Rate
    provenance: Provenance
    probe: Literal["ok", "failed", "not probed"] = "not probed"


class Unreachable(Strict):
    machine: Name
    reason: str


class ClusterRef(Strict):
    """Which cluster this is: this machine, a live Ray cluster, the lab, or an inventory of what is not at hand."""

    kind: Literal["local", "ray", "lab", "inventory"]
    name: Name
    address: str = ""
    reconstructed: bool = Field(default=False, description="built from published ranges, not from a measurement")


class Topology(Document):
    """What profile found. ``basis`` holds the rates the fingerprint is made of (see :meth:`fingerprint_of`).

    Schema 2: the all-reduce by group size, and the way from a device to its host. A document of schema 1 is read as one that knows neither.
    """

    artifact: ClassVar[str] = "topology"
    volatile: ClassVar[frozenset[str]] = frozenset({"measured_at"})

    schema_version: int = 2
    cluster: ClusterRef
    machines: list[Machine] = Field(min_length=1)
    devices: list[Device] = Field(min_length=1)
    links: list[Link] = Field(default_factory=list)
    unreachable: list[Unreachable] = Field(default_factory=list)
    basis: dict[str, float] = Field(
        default_factory=dict,
        description="rate name → anchor; a measurement within the tolerance of its anchor keeps it, so noise does not move the fingerprint",
    )
    fingerprint: str = Field(default="", description="filled when empty")
    measured_at: datetime | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Topology:
        machines = {m.name for m in self.machines}
        if len(machines) != len(self.machines):
            raise ValueError("two machines have one name: names must be unique")
        ids = [d.id for d in self.devices]
        if len(set(ids)) != len(ids):
            raise ValueError("two devices have one id: ids must be unique")
        for d in self.devices:
            if d.machine not in machines:
                raise ValueError(f"device {d.id} sits in machine {d.machine!r}, which is not listed: add it to machines")
        pairs = [(k.source, k.target) for k in self.links]
        if len(set(pairs)) != len(pairs):
            raise ValueError("a link is listed twice: one entry a direction")
        for link in self.links:
            for end in (link.source, link.target):
                if end not in machines:
                    raise ValueError(f"link {link.source} → {link.target} names machine {end!r}, which is not listed")
        expected = self.fingerprint_of()
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", expected)
        elif self.fingerprint != expected:
            raise ValueError("fingerprint does not match the content: leave it empty to have it computed")
        return self

    def fingerprint_of(self) -> str:
        """Digest of what a plan depends on: who is there, what each device is, and the anchored rates (not their noise)."""
        return digest({
            "cluster": [self.cluster.kind, self.cluster.name],
            "machines": sorted([m.name, m.zone, m.region, m.host_memory_bytes // 2**26, m.cpus] for m in self.machines),
            "devices": sorted([d.id, d.machine, d.name, d.device_class, d.uuid, d.memory_bytes // 2**26, sorted(d.dtypes), d.mig_parent,
                               d.price_per_hour] for d in self.devices),
            "unconnected": sorted({(a.name, b.name) for a in self.machines for b in self.machines}
                                  - {(k.source, k.target) for k in self.links if k.probe != "failed"}),
            "basis": self.basis,
        })

    def classes_alike(self, device_class: str) -> set[str]:
        """Device classes of the same vendor."""
        vendors = {d.vendor for d in self.devices if d.device_class == device_class}
        return {d.device_class for d in self.devices if d.vendor in vendors}

    def identity(self) -> str:
        return self.fingerprint

    def device(self, device_id: str) -> Device:
        return next(d for d in self.devices if d.id == device_id)

    def machine(self, name: str) -> Machine:
        return next(m for m in self.machines if m.name == name)

    def link(self, source: str, target: str) -> Link | None:
        return next((k for k in self.links if k.source == source and k.target == target), None)
