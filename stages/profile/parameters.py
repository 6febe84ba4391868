"""What the profile stage can be asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from artifacts.base import Strict
from stages.profile.listings.schema import Listings


class LocalCluster(Strict):
    """This machine."""

    kind: Literal["local"]


class InventoryCluster(Strict):
    """A described fleet. The text itself, not its path: the stage needs nothing but its request and the store.

    A text that another tool printed is taken for a listing (``files``) of one file.
    """

    kind: Literal["inventory"]
    text: str = Field(description="the inventory, as YAML")
    where: str = Field(default="inventory", description="what messages call it: the path it was read from")


class ScenarioCluster(Strict):
    """One of the published network settings of the 64-GPU testbed, reconstructed."""

    kind: Literal["scenario"]
    name: str


class RayCluster(Strict):
    """A live Ray cluster, or the lab, which is one."""

    kind: Literal["ray", "lab"]
    address: str = Field(default="auto", description="host:port of its GCS (ray:// in front is accepted), or auto")
    name: str = Field(default="", max_length=100, description="what it is called from profile to profile; unset: after its address")
    network_seconds: float = Field(default=200.0, ge=1, le=3600, description="time for its network; with more machines than fit, pairs are "
                                                                            "sampled, and the topology's page says with what error")


class ListingsCluster(Listings):
    """A fleet by what nvidia-smi, amd-smi, SLURM or Kubernetes print of it; which of them printed a text is told from the text."""

    kind: Literal["files"]


class ProfileParameters(Strict):
    cluster: Annotated[LocalCluster | InventoryCluster | ScenarioCluster | ListingsCluster | RayCluster,
                       Field(discriminator="kind")] = LocalCluster(kind="local")
    devices: int | None = Field(default=None, ge=1, le=64, description="split a machine's CPU into that many devices (and use no GPU); "
                                                                       "unset: its GPUs, or a device a core, at most 8")
    machine: str = Field(default="", max_length=100, description="name of this machine; unset: its host name. "
                                                                 "Containers with random host names need it to be recognised again")
    seconds: float = Field(default=6.0, ge=0.5, le=600, description="to spend measuring a device; a link gets a quarter of it a direction")
    strict: bool = Field(default=False, description="fail where a device or a link cannot be measured or a machine not be reached, "
                                                    "instead of leaving it out")
