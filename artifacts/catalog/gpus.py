"""GPUs by name: what their spec sheets say, and the rates somebody measured on them. Data in ``gpus.yaml``."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import Literal

from pydantic import Field

from artifacts.base import Bytes, Name, Rate, Strict
from artifacts.catalog import load_yaml
from artifacts.errors import InputError
from artifacts.topology import Dtype
from artifacts.units import MIB


class DriverMemory(Strict):
    """Total memory as the vendor's driver reports it."""

    mib: int = Field(ge=1)
    source: str = Field(min_length=1)


class MeasuredRates(Strict):
    """Achieved rates from a published table; ``part`` is the one they were measured on, where it is not this one."""

    part: str = ""
    gemm_tflops: Rate | None = None
    weight_read_gb_per_s: Rate | None = None
    allreduce_gb_per_s: dict[int, Rate] = Field(default_factory=dict, description="number of GPUs in a machine → bus bandwidth")
    link_gb_per_s: Rate | None = Field(default=None, description="between two GPUs of a machine, one direction")
    source: str = Field(min_length=1)


class Gpu(Strict):
    """One part. Rates are dense and at 16 bit, links one direction; None is not known, and stays so."""

    name: Name
    vendor: Literal["nvidia", "amd"]
    architecture: str
    driver_names: list[str] = Field(default_factory=list)
    dense_16bit_tflops: Rate | None = None
    dtypes: list[Dtype] = Field(default=["bf16", "fp16", "fp32"])
    memory_gb: Rate | None = None
    driver_memory: DriverMemory | None = None
    memory_gb_per_s: Rate | None = None
    fabric_gb_per_s: Rate | None = None
    pcie_gb_per_s: Rate | None = None
    measured: MeasuredRates | None = None
    source: str = Field(min_length=1)
    notes: str = ""

    @property
    def memory_bytes(self) -> Bytes | None:
        """What the driver reports where that is known, else the data sheet's figure (10^9 bytes a GB, so rather too little)."""
        if self.driver_memory is not None:
            return self.driver_memory.mib * MIB
        return int(self.memory_gb * 1e9) if self.memory_gb is not None else None

    @property
    def unknown(self) -> list[str]:
        """What a planner cannot do without and this entry does not know."""
        compute = self.dense_16bit_tflops or (self.measured.gemm_tflops if self.measured else None)
        wanted = {"memory": self.memory_bytes, "memory bandwidth": self.memory_gb_per_s, "compute rate": compute}
        return [name for name, value in wanted.items() if value is None]


@cache
def gpus() -> dict[str, Gpu]:
    """Every GPU of the catalogue by its name."""
    return {name: Gpu.model_validate({"name": name, **fields}) for name, fields in load_yaml("gpus.yaml").items()}


def gpu_by_name(name: str, *, where: str) -> Gpu:
    """The GPU of that name or driver name; capitals and punctuation do not matter.

    Raises :class:`InputError` naming the nearest ones when there is none.
    """
    found = find_gpu(name)
    if found is None:
        near = nearest(name)
        raise InputError(f"{where}: no GPU {name[:60]!r} in the catalogue",
                         fix=("nearest: " + ", ".join(near)) if near else "use one of " + ", ".join(gpus()))
    return found


def find_gpu(name: str) -> Gpu | None:
    return _by_key().get(_key(name))


def nearest(name: str, *, at_most: int = 5) -> list[str]:
    """Names of the catalogue that resemble ``name``: those that begin or contain it first, then the closest spellings."""
    key = _key(name)
    if not key:
        return []
    known = _by_key()
    inside = sorted((k for k in known if key in k or k in key), key=lambda k: (not k.startswith(key), len(k)))
    close = get_close_matches(key, known, n=at_most, cutoff=0.5)
    return list(dict.fromkeys(known[k].name for k in (*inside, *close)))[:at_most]


@cache
def _by_key() -> dict[str, Gpu]:
    """Names, driver names, and driver names without the vendor's words ("L4", "RTX 4090")."""
    found: dict[str, Gpu] = {}
    for gpu in gpus().values():
        plain = [re.sub(r"^(NVIDIA|AMD)? ?(GeForce|Tesla|Instinct)? ?", "", name) for name in gpu.driver_names]
        for alias in (gpu.name, *gpu.driver_names, *plain):
            if found.setdefault(_key(alias), gpu) is not gpu:
                raise ValueError(f"gpus.yaml: {alias!r} names both {found[_key(alias)].name} and {gpu.name}")
    return found


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
