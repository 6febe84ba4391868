"""A device as found, before anything is measured. What could not be read is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from artifacts.topology import Dtype


@dataclass(frozen=True)
class FoundDevice:
    """``index`` counts the devices of a machine; ``parent`` is the UUID of the GPU a MIG instance is cut from; ``part`` what part of
    that GPU's compute it has. ``quota`` is the part of a core's time that a CPU share may use, where the container's limit is what bounds
    it. ``condition``: its clocks, and what holds them down."""

    index: int
    vendor: Literal["nvidia", "amd", "cpu"]
    name: str
    uuid: str
    memory_bytes: int | None
    dtypes: tuple[Dtype, ...]
    compute_capability: str = ""
    parent: str = ""
    cores: int = 0
    quota: float | None = None
    part: float | None = None
    condition: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """From what ``dataclasses.asdict`` made of one, on its way through JSON."""
        return cls(**{**fields, "dtypes": tuple(fields["dtypes"])})

    @property
    def id(self) -> str:
        return f"{'cpu' if self.vendor == 'cpu' else 'gpu'}-{self.index}"


@dataclass(frozen=True)
class Placed:
    """A device in a fleet: its id there, and the machine it sits in."""

    id: str
    machine: str
    device: FoundDevice


@dataclass(frozen=True)
class Finding:
    """Devices of a machine, and a line for each thing that could not be read."""

    devices: tuple[FoundDevice, ...]
    notes: tuple[str, ...] = ()
