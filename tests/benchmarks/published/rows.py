"""The published measurements, one row a number (``data/measured_points.csv``: each row names its source)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Row:
    """A measurement as printed by its source; None where the source says nothing (or no plain number). Lengths in tokens."""

    number: int
    """Line of the file, the heading being 1."""
    source: str
    system: str
    algorithm: str
    phase: str
    model: str
    gpu: str
    n_gpus: int | None
    tp: int | None
    pp: int | None
    dp: int | None
    global_batch: str
    prompt_len: int | None
    response_len: int | None
    value: float
    unit: str
    notes: str

    @property
    def prompts(self) -> int | None:
        """Prompts of an iteration; ``1024x5`` is five responses to each."""
        head = self.global_batch.partition("x")[0]
        return int(head) if head.isdigit() else None

    @property
    def responses(self) -> int:
        return int(self.global_batch.partition("x")[2] or 1)

    @property
    def text(self) -> str:
        """What a person may call the row: model, GPUs, cut."""
        cut = "×".join("?" if n is None else str(n) for n in (self.dp, self.pp, self.tp))
        return ", ".join(part for part in (self.model, f"{self.n_gpus or '?'} × {self.gpu}", cut) if part)


@cache
def published_rows() -> tuple[Row, ...]:
    with (DATA / "measured_points.csv").open(encoding="utf-8", newline="") as file:
        return tuple(_row(number, fields) for number, fields in enumerate(csv.DictReader(file), start=2))


def _row(number: int, fields: dict[str, str]) -> Row:
    return Row(
        number=number,
        source=fields["source_url"],
        system=fields["system"],
        algorithm=fields["algorithm"],
        phase=fields["phase"],
        model=fields["model"],
        gpu=fields["gpu"],
        n_gpus=_whole(fields["n_gpus"]),
        tp=_whole(fields["tp"]),
        pp=_whole(fields["pp"]),
        dp=_whole(fields["dp"]),
        global_batch=fields["global_batch"],
        prompt_len=_whole(fields["prompt_len"]),
        response_len=_whole(fields["response_len"]),
        value=float(fields["value"]),
        unit=fields["unit"],
        notes=fields["notes"],
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None
