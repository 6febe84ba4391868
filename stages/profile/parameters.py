"""What the profile stage can be asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from artifacts.base import Strict


class LocalCluster(Strict):
    """This machine."""

    kind: Literal["local"]


class InventoryCluster(Strict):
    """A described fleet. The text itself, not its path: the stage needs nothing but its request and the store."""

    kind: Literal["inventory"]
    text: str = Field(description="the inventory, as YAML")
    where: str = Field(default="inventory", description="what messages call it: the path it was read from")


class ScenarioCluster(Strict):
    """One of the published network settings of the 64-GPU testbed, reconstructed."""

    kind: Literal["scenario"]
    name: str


class RayCluster(Strict):
    """A live Ray cluster."""

    kind: Literal["ray"]
    address: str = "auto"


class ProfileParameters(Strict):
    cluster: Annotated[LocalCluster | InventoryCluster | ScenarioCluster | RayCluster,
                       Field(discriminator="kind")] = LocalCluster(kind="local")
    devices: int | None = Field(default=None, ge=1, le=64, description="split this machine's CPU into that many devices (and use no GPU); "
                                                                       "unset: its GPUs, or a device a core, at most 8")
    machine: str = Field(default="", max_length=100, description="name of this machine; unset: its host name. "
                                                                 "Containers with random host names need it to be recognised again")
    seconds: float = Field(default=6.0, ge=0.5, le=600, description="time to spend measuring")
    strict: bool = Field(default=False, description="fail where a device cannot be measured, instead of leaving it out")
