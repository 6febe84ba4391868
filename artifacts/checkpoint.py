"""Where the weights and the optimizer state are, so that a rerun resumes."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from artifacts.base import Bytes, Document, Strict


class CheckpointFile(Strict):
    name: str = Field(description="path within the checkpoint")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: Bytes


class Checkpoint(Document):
    """A checkpoint after ``step`` iterations."""

    artifact: ClassVar[str] = "checkpoint"

    step: int = Field(ge=0)
    format: Literal["hf", "verl"] = Field(description="hf: weights only, a Hugging Face folder; verl: weights and optimizer, resumable")
    url: str = Field(default="", description="where the files are, if not beside this document")
    files: list[CheckpointFile] = Field(default_factory=list)
    resumable: bool = False
