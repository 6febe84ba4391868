"""What may be given to the profile stage beside the files that other tools printed."""

from __future__ import annotations

from pydantic import Field

from artifacts.base import Name, Rate, Strict
from stages.profile.inventory.schema import GpuItem, Links


class ListingFile(Strict):
    """The text itself, not its path: the stage needs nothing but its request and the store."""

    text: str = Field(max_length=64 << 20)
    where: str = Field(default="listing", description="what messages call it: the path it was read from")
    machine: str = Field(default="", max_length=100, description="which machine's output it is (nvidia-smi and amd-smi do not say); "
                                                                 "unset: the file's name up to its first dot")


class HostItem(Strict):
    """What the tools do not say of a machine."""

    name: Name
    host_memory_gib: Rate | None = None
    cpus: int | None = Field(default=None, ge=1)
    region: str = ""
    zone: str = ""


class Listings(Strict):
    """A fleet by what tools print of it."""

    name: Name
    files: list[ListingFile] = Field(min_length=1)
    machines: list[HostItem] = Field(default_factory=list)
    gpus: list[GpuItem] = Field(default_factory=list, description="what is not in the catalogue, by the driver's name for it")
    types: dict[str, str] = Field(default_factory=dict, description="a scheduler's word for a GPU → its name in the catalogue")
    links: Links = Field(default_factory=Links)
