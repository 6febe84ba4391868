"""What was found in each cell, kept line by line: a replay that was stopped goes on from here."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from artifacts.base import Seconds, Strict
from artifacts.errors import InputError


class Result(Strict):
    """One cell's figures, in seconds of an iteration. ``why``: no plan, or one that cannot be played."""

    key: str
    cell: str
    why: str = ""
    predicted_s: Seconds | None = None
    simulated_s: Seconds | None = None
    terms: dict[str, dict[str, Seconds]] = Field(default_factory=dict, description="predicted: task → term → seconds")
    by_task: dict[str, Seconds] = Field(default_factory=dict, description="simulated: task → seconds")
    plan: list[str] = Field(default_factory=list, description="a group a line")
    idle: int = 0
    solver_status: str = ""
    proof_scope: str = ""
    evaluations: int = 0
    cpu_s: Seconds = Field(default=0.0, description="of the search, all threads")
    trajectory: list[tuple[int, float]] = Field(default_factory=list, description="(evaluations, best predicted seconds)")


class Results:
    """A file of lines; the newest line of a key counts, a line cut off by a crash is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Result] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        except OSError as error:
            raise InputError(f"cannot keep results in {path}: {error.strerror}", fix="choose a folder you may write to") from None
        for line in lines:
            try:
                result = Result.model_validate_json(line)
            except ValidationError:
                continue
            self.known[result.key] = result

    def add(self, result: Result) -> None:
        """Remember and write at once."""
        self.known[result.key] = result
        whole = not self.path.exists() or self.path.stat().st_size == 0 or self.path.read_bytes()[-1:] == b"\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("" if whole else "\n") + result.model_dump_json() + "\n")
