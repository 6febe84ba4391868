"""What an inventory may say. Every field is one a person writes, in the units people use."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from artifacts.base import Name, Strict

Amount = Annotated[float, Field(gt=0, le=1e9)]
"""GiB, TFLOP/s, GB/s, Gbit/s: far above any machine's, and still a number in bytes."""


class GpuItem(Strict):
    """GPUs of one kind in a machine. What is given here goes before the catalogue's figure."""

    gpu: str = Field(min_length=1, description="name in the catalogue, or the driver's name")
    count: int = Field(default=1, ge=1, le=64)
    memory_gib: Amount | None = None
    achieved_tflops: Amount | None = Field(default=None, description="16-bit matmul rate as measured")
    memory_gb_per_s: Amount | None = Field(default=None, description="rate at which weights are read, as measured")
    price_per_hour: float | None = Field(default=None, ge=0, description="of one GPU")


class MachineItem(Strict):
    """``count`` equal machines: ``name`` for one, ``name-0``, ``name-1``, … for several."""

    name: Name
    count: int = Field(default=1, ge=1, le=4096)
    gpus: list[GpuItem] = Field(min_length=1)
    region: str = ""
    zone: str = ""
    host_memory_gib: Amount
    cpus: int = Field(ge=1)

    @property
    def names(self) -> list[str]:
        return [self.name] if self.count == 1 else [f"{self.name}-{i}" for i in range(self.count)]


class LinkItem(Strict):
    """A class of links: one-way latency and bandwidth of each direction."""

    latency_ms: float = Field(ge=0, le=60_000)
    bandwidth_gbit_per_s: Amount


class PairItem(Strict):
    """Between two regions, or between two machines (by name, or by the name of a group of machines)."""

    between: list[str] = Field(min_length=2, max_length=2)
    latency_ms: float | None = Field(default=None, ge=0, le=60_000)
    bandwidth_gbit_per_s: Amount | None = None
    connected: bool = Field(default=True, description="false: there is no direct connection")

    @model_validator(mode="after")
    def _whole(self) -> PairItem:
        given = [self.latency_ms is not None, self.bandwidth_gbit_per_s is not None]
        if self.connected and not all(given):
            raise ValueError("give latency_ms and bandwidth_gbit_per_s, or connected: false")
        if not self.connected and any(given):
            raise ValueError("connected: false has neither latency nor bandwidth: take them out")
        return self


class Links(Strict):
    """The most particular entry counts: machines, then regions, then the class of the pair."""

    inside_machine: LinkItem | None = Field(default=None, description="unset: from the catalogue, by the machine's GPUs")
    same_zone: LinkItem | None = None
    same_region: LinkItem | None = Field(default=None, description="between zones of a region; unset: as same_zone")
    between_regions: LinkItem | None = Field(default=None, description="for pairs of regions that are not listed")
    regions: list[PairItem] = Field(default_factory=list)
    machines: list[PairItem] = Field(default_factory=list)


class Inventory(Strict):
    """A fleet. ``reconstructed``: built from published ranges, not from a measurement."""

    name: Name
    description: str = ""
    reconstructed: bool = False
    machines: list[MachineItem] = Field(min_length=1)
    links: Links = Field(default_factory=Links)
