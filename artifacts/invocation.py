"""How a stage is asked to run and how it answers: the request file, and the JSON lines on its standard output."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from artifacts.base import Document, JsonObject, Name, Strict
from artifacts.manifest import VersionRef


class StageRequest(Document):
    """Everything a stage needs; whatever is not here is in the store. Holds no secret."""

    artifact: ClassVar[str] = "request"

    stage: Name
    store: str = Field(description="store URL: file:///… or s3://bucket/prefix; credentials come from the environment")
    pipeline: Name
    version: Name = Field(description="the version to write")
    inputs: dict[Name, VersionRef] = Field(default_factory=dict, description="artifact name → version to read it from")
    context: dict[Name, list[VersionRef]] = Field(default_factory=dict, description="earlier versions to compare with, newest first")
    parameters: JsonObject = Field(default_factory=dict)
    run_id: str = ""
    runner: str = "process"
    code_digest: str = ""
    image_digest: str = ""
    workdir: str = Field(default=".hetrl/work", description="scratch folder of this stage; what is left in it is not part of the result")


class Log(Strict):
    event: Literal["log"] = "log"
    level: Literal["debug", "info", "warning", "error"] = "info"
    message: str


class Progress(Strict):
    """``done`` of ``total`` (``total`` 0: unknown), and a line for the person; ``values`` are figures worth plotting."""

    event: Literal["progress"] = "progress"
    done: float
    total: float
    message: str = ""
    values: dict[str, float] = Field(default_factory=dict)


class Outcome(Strict):
    """The last line a stage prints."""

    event: Literal["outcome"] = "outcome"
    status: Literal["ok", "error"]
    version: str = ""
    summary: dict[str, Any] = Field(default_factory=dict)
    kind: str = Field(default="", description="the error's kind, as in artifacts.errors")
    message: str = ""
    fix: str = ""
    details: dict[str, Any] = Field(default_factory=dict)


Event = Annotated[Log | Progress | Outcome, Field(discriminator="event")]
_EVENT: TypeAdapter[Log | Progress | Outcome] = TypeAdapter(Event)


def parse_event(line: str) -> Log | Progress | Outcome:
    """A line of a stage's output. What is not an event (a library's print) is a log line: nothing is lost."""
    text = line.rstrip("\n")
    if text.startswith("{"):
        try:
            return _EVENT.validate_json(text)
        except ValidationError:
            pass
    return Log(level="debug", message=text)
