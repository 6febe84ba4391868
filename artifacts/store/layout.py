"""Where things are: the keys of one pipeline. Names are checked here, so no name can leave its folder."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from artifacts.base import Name
from artifacts.errors import InputError
from artifacts.manifest import VersionRef

MANIFEST = "manifest.json"
HISTORY = "history"
LEASES = "leases"

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_NUMBERED = re.compile(r"([1-9][0-9]{0,17})\.json")


@dataclass(frozen=True)
class Layout:
    """``<pipeline>/<stage>/<version>/…``, ``<pipeline>/<stage>/history/<n>.json``, ``<pipeline>/leases/<cluster>/<epoch>.json``."""

    pipeline: str

    def __post_init__(self) -> None:
        name_of("pipeline", self.pipeline)

    def stage(self, stage: str) -> str:
        return f"{self.pipeline}/{name_of('stage', stage, reserved=LEASES)}"

    def version(self, ref: VersionRef) -> str:
        return f"{self.stage(ref.stage)}/{name_of('version', ref.version, reserved=HISTORY)}"

    def manifest(self, ref: VersionRef) -> str:
        return f"{self.version(ref)}/{MANIFEST}"

    def history(self, stage: str) -> str:
        return f"{self.stage(stage)}/{HISTORY}"

    def leases(self, cluster: str) -> str:
        return f"{self.pipeline}/{LEASES}/{name_of('cluster', cluster)}"


def make_ref(stage: str, version: str) -> VersionRef:
    """A reference from two strings a person or a program gave; ``InputError`` when one is not a name."""
    return VersionRef(stage=name_of("stage", stage, reserved=LEASES), version=name_of("version", version, reserved=HISTORY))


def name_of(what: str, value: str, *, reserved: str = "") -> str:
    try:
        name = _NAME.validate_python(value, strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{what}: {reason}", fix="choose another name") from None
    if name == reserved:
        raise InputError(f"{what}: {name!r} is a name the store uses itself", fix="choose another name")
    return name


def number_of(key: str) -> int | None:
    """n of ``…/<n>.json``; None for any other key."""
    match = _NUMBERED.fullmatch(key.rsplit("/", 1)[-1])
    return int(match.group(1)) if match else None
