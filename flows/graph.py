"""The order of the stages, and what each reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from artifacts.errors import InputError

StageName = Literal["profile", "schedule", "deploy", "train", "validate"]


@dataclass(frozen=True)
class StageSpec:
    """What a stage reads. ``context`` is compared with, and is not part of the version's key; ``warm`` is that where a run asks for it."""

    name: StageName
    inputs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    timeout_s: float = 3600.0
    retries: int = 1


STAGES: tuple[StageSpec, ...] = (
    StageSpec("profile", context=("topology",), timeout_s=900),
    StageSpec("schedule", inputs=("job", "topology"), optional=("calibration",), warm=("plan",), timeout_s=3600),
    StageSpec("deploy", inputs=("job", "topology", "plan"), timeout_s=900),
    StageSpec("train", inputs=("job", "topology", "plan", "deployment"), timeout_s=7 * 24 * 3600.0),
    StageSpec("validate", inputs=("job", "topology", "plan", "prediction", "search", "deployment", "throughput"),
              optional=("calibration",), context=("validation",), timeout_s=900),
)
ORDER: tuple[StageName, ...] = tuple(s.name for s in STAGES)
SPEC: dict[str, StageSpec] = {s.name: s for s in STAGES}

MAKER: dict[str, str] = {
    "job": "job",
    "topology": "profile",
    "plan": "schedule",
    "prediction": "schedule",
    "search": "schedule",
    "deployment": "deploy",
    "throughput": "train",
    "checkpoint": "train",
    "validation": "validate",
    "calibration": "validate",
}
FILE: dict[str, str] = {a: f"{a}.json" for a in MAKER} | {"throughput": "throughput.jsonl"}


@dataclass(frozen=True)
class Selection:
    """Which stages a run covers, in order."""

    stages: tuple[StageName, ...] = field(default=ORDER)

    @classmethod
    def of(cls, *, from_stage: StageName | None = None, until_stage: StageName | None = None, only: StageName | None = None) -> Selection:
        if only and (from_stage or until_stage):
            raise InputError("only cannot be combined with from or until", fix="give --only, or --from and --until")
        if only:
            return cls((only,))
        first = ORDER.index(from_stage) if from_stage else 0
        last = ORDER.index(until_stage) if until_stage else len(ORDER) - 1
        if first > last:
            raise InputError(f"from {from_stage} comes after until {until_stage}", fix=f"the order is {' → '.join(ORDER)}")
        return cls(ORDER[first : last + 1])
