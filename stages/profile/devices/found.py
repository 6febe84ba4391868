"""A device as found, before anything is measured. What could not be read is None."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from artifacts.topology import Dtype


@dataclass(frozen=True)
class FoundDevice:
    """``index`` counts the devices of a machine; ``parent`` is the UUID of the GPU a MIG instance is cut from."""

    index: int
    vendor: Literal["nvidia", "amd", "cpu"]
    name: str
    uuid: str
    memory_bytes: int | None
    dtypes: tuple[Dtype, ...]
    compute_capability: str = ""
    parent: str = ""
    cores: int = 0

    @property
    def id(self) -> str:
        return f"{'cpu' if self.vendor == 'cpu' else 'gpu'}-{self.index}"


@dataclass(frozen=True)
class Finding:
    """Devices of a machine, and a line for each thing that could not be read."""

    devices: tuple[FoundDevice, ...]
    notes: tuple[str, ...] = ()
