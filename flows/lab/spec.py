"""What a lab's YAML may say, and what it means for every pair of machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from artifacts.base import Name, Strict, describe, read_text
from artifacts.errors import InputError
from artifacts.yaml_text import read_yaml

MAX_MBIT_PER_S = 500
"""What the router, one process, keeps up with."""


class LabMachine(Strict):
    """A container that stands for a machine."""

    name: Name
    cpus: float = Field(ge=0.1, le=64, description="cores' worth of CPU time")
    memory_gib: float = Field(ge=1, le=1024)
    devices: int = Field(default=1, ge=1, le=8, description="its CPU time in equal shares, each standing for an accelerator")
    region: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$")


class LabLink(Strict):
    """Between two machines, or all those of two regions (``[eu, eu]``: inside one). Both directions, each with the whole bandwidth."""

    between: list[str] = Field(min_length=2, max_length=2)
    latency_ms: float = Field(ge=0, le=1000, description="one way")
    bandwidth_mbit_per_s: float = Field(ge=1, le=MAX_MBIT_PER_S)


class LabSpec(Strict):
    """A lab. The most particular link counts: machine and machine, then machine and region, then region and region."""

    name: Name
    machines: list[LabMachine] = Field(min_length=2, max_length=32)
    links: list[LabLink]

    @model_validator(mode="after")
    def _whole(self) -> LabSpec:
        counts = Counter(m.name for m in self.machines)
        regions = {m.region for m in self.machines if m.region}
        if twice := sorted(name for name, count in counts.items() if count > 1):
            raise ValueError(f"machine {', '.join(twice)} is there twice: every machine has a name of its own")
        if both := sorted(regions & set(counts)):
            raise ValueError(f"{', '.join(both)} names a machine and a region: rename one of them")
        known = {*counts, *regions}
        if unknown := sorted({end for link in self.links for end in link.between} - known):
            raise ValueError(f"a link names {', '.join(unknown)}, neither a machine nor a region; there are: {', '.join(sorted(known))}")
        pairs = Counter(frozenset(link.between) for link in self.links)
        if twice := sorted("–".join(sorted(pair)) for pair, count in pairs.items() if count > 1):
            raise ValueError(f"link {', '.join(twice)} is there twice: one entry says both directions")
        if bare := [f"{a.name}–{b.name}" for a, b in combinations(self.machines, 2) if self._find(a, b) is None]:
            raise ValueError(f"no link between {', '.join(bare[:5])}: add one, by machine or by region")
        return self

    def pairs(self) -> Iterator[tuple[str, str, LabLink]]:
        """Every pair of machines, both directions, and its link."""
        for a, b in combinations(self.machines, 2):
            link = self._find(a, b)
            assert link is not None
            yield a.name, b.name, link
            yield b.name, a.name, link

    def _find(self, a: LabMachine, b: LabMachine) -> LabLink | None:
        links = {frozenset(link.between): link for link in self.links}
        for ends in ((a.name, b.name), (a.name, b.region), (a.region, b.name), (a.region, b.region)):
            if frozenset(ends) in links:
                return links[frozenset(ends)]
        return None


def read_lab(path: str | Path) -> LabSpec:
    """A lab from its YAML. Raises :class:`InputError` with one line that says what is wrong and where."""
    return parse_lab(read_text(path), where=str(path))


def parse_lab(text: str, *, where: str) -> LabSpec:
    """Like :func:`read_lab`, of a text; ``where`` is what messages call it."""
    data = read_yaml(text, where=where)
    if not isinstance(data, dict):
        raise InputError(f"{where} does not describe a lab", fix="start from infra/lab/two-regions.yaml")
    try:
        return LabSpec.model_validate(data)
    except ValidationError as error:
        raise InputError(describe(error, where=where, model=LabSpec)) from None


def check_fits(spec: LabSpec, *, cores: int, memory_bytes: int) -> None:
    """Raise :class:`InputError` where the machine has not what the lab's quotas add up to."""
    cpus, memory = sum(m.cpus for m in spec.machines), sum(m.memory_gib for m in spec.machines)
    if cpus > cores:
        raise InputError(f"the machines of lab {spec.name} have quotas of {cpus:g} cores in all, this machine has {cores}",
                         fix=f"lower their cpus: the sum must stay below {cores}, with room for the router")
    if memory * 2**30 > memory_bytes:
        raise InputError(f"the machines of lab {spec.name} may take {memory:g} GiB in all, this machine has {memory_bytes / 2**30:.1f} GiB",
                         fix="lower their memory_gib")
