"""What a committed version consists of, and the leases on a cluster."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Field

from artifacts.base import Bytes, Document, JsonObject, Name, Strict


class FileEntry(Strict):
    """One stored file of a version."""

    key: str = Field(description="object name below the version's folder; may differ from the logical name after a repeated attempt")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: Bytes
    identity: str = Field(description="digest of what the file means; inputs of later stages are compared by it")


class VersionRef(Strict):
    """A committed version of a stage: ``schedule@1f3a…``."""

    stage: Name
    version: Name

    def __str__(self) -> str:
        return f"{self.stage}@{self.version}"


class Producer(Strict):
    """Who made a version, when, with what. No secrets, no environment."""

    hetrl: str
    code_digest: str
    image_digest: str = ""
    host: str = ""
    runner: str = ""
    run_id: str = ""
    started_at: datetime
    finished_at: datetime


class Manifest(Document):
    """Written last, by a conditional put: its presence is the commit of its version."""

    artifact: ClassVar[str] = "manifest"

    pipeline: Name
    stage: Name
    version: Name
    files: dict[Name, FileEntry] = Field(description="logical file name (plan.json) → what is stored")
    inputs: dict[Name, VersionRef] = Field(default_factory=dict, description="artifact name → the version it was read from")
    context: dict[Name, list[VersionRef]] = Field(default_factory=dict, description="versions it was compared with; not part of the key")
    parameters: JsonObject = Field(default_factory=dict)
    summary: JsonObject = Field(default_factory=dict, description="a few figures for listings")
    producer: Producer

    @property
    def ref(self) -> VersionRef:
        return VersionRef(stage=self.stage, version=self.version)


class LeaseRecord(Document):
    """One epoch of the lease on a cluster. The next epoch may be taken once this one is released or has expired."""

    artifact: ClassVar[str] = "lease"

    cluster: Name
    epoch: int = Field(ge=1)
    holder: str
    run_id: str
    taken_at: datetime
    expires_at: datetime
    state: str = Field(default="held", pattern="^(held|renewed|released)$")
