"""What was found after launch: which rank sits on which device of which machine, and how the engine was configured."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Field

from artifacts.base import Document, Name, Seconds, Strict
from artifacts.job import TaskName


class RankPlacement(Strict):
    """One rank as proved by the process that holds it."""

    task: TaskName
    rank: int = Field(ge=0)
    machine: Name
    device: Name
    device_uuid: str
    ray_node_id: str
    pid: int = Field(default=0, ge=0)


class RayNode(Strict):
    """One Ray node and the resources declared to Ray for it."""

    machine: Name
    node_id: str = ""
    resources: dict[str, float] = Field(default_factory=dict)


class Check(Strict):
    name: str
    ok: bool
    found: str = ""


class Deployment(Document):
    """Made by deploy; train refuses to run on anything else."""

    artifact: ClassVar[str] = "deployment"
    volatile: ClassVar[frozenset[str]] = frozenset({"deployed_at", "checks", "ranks", "nodes", "seconds"})

    plan: str = Field(description="identity of the plan")
    topology_fingerprint: str
    cluster: Name
    address: str = Field(default="", description="Ray address; empty: the cluster is started for the length of a stage")
    nodes: list[RayNode]
    ranks: list[RankPlacement]
    engine: dict[str, str | int | float | bool] = Field(default_factory=dict, description="engine configuration derived from the plan")
    endpoints: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict, description="library → version, as found on the nodes")
    image_digests: dict[str, str] = Field(default_factory=dict)
    checks: list[Check] = Field(default_factory=list)
    deployed_at: datetime | None = None
    seconds: dict[str, Seconds] = Field(default_factory=dict)
