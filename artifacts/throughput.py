"""The throughput log: JSON lines, a header and then a line an iteration, written while training runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import Field, ValidationError, computed_field

from artifacts.base import Document, Seconds, Strict, read_json
from artifacts.errors import InputError


class Header(Strict):
    """First line."""

    line: Literal["header"] = "header"
    schema_version: int = 1
    engine: str
    simulated: bool = False
    job: str
    plan: str
    seed: int
    resumed_step: int = Field(default=0, ge=0, description="iterations up to it are of an interrupted run, perhaps under another plan")
    versions: dict[str, str] = Field(default_factory=dict)
    devices: dict[str, str] = Field(default_factory=dict, description="device id → device class")


class Replica(Strict):
    """What one replica of a task did in an iteration."""

    sequences: int = Field(ge=0, le=2**53)
    tokens: int = Field(ge=0, le=2**53)
    time_s: Seconds


class Iteration(Strict):
    """One training iteration. ``tokens`` counts prompts and responses."""

    line: Literal["iteration"] = "iteration"
    step: int = Field(ge=1)
    time_s: float = Field(ge=1e-9)
    by_task_s: dict[str, Seconds] = Field(description="task → seconds; also weight_update, reward, other")
    sequences: int = Field(ge=0, le=2**53)
    tokens: int = Field(ge=0, le=2**53)
    reward_mean: float | None = None
    loss: float | None = None
    kl: float | None = None
    entropy: float | None = None
    grad_norm: float | None = None
    staleness: float | None = None
    response_tokens_mean: float | None = None
    replicas: dict[str, list[Replica]] = Field(default_factory=dict, description="task → replicas")
    memory_peak_bytes: int | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def samples_per_s(self) -> float:
        return self.sequences / self.time_s

    @computed_field  # type: ignore[prop-decorator]
    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.time_s


class Throughput(Document):
    """The whole log."""

    artifact: ClassVar[str] = "throughput"

    header: Header
    iterations: list[Iteration] = Field(default_factory=list)

    def to_jsonl(self) -> str:
        return "".join(line.model_dump_json(exclude_none=True) + "\n" for line in (self.header, *self.iterations))

    @classmethod
    def from_jsonl(cls, text: str | bytes, *, where: str) -> Throughput:
        """Parse a log; a last line cut off by a crash is left out, any other bad line is an ``InputError``."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        lines = text.split("\n")[:-1]  # not splitlines: a name may hold characters that other conventions end a line with
        if not lines:
            raise InputError(f"{where} is empty", fix="rerun the train stage")
        header = _Line.header(lines[0], where)
        return cls(header=header, iterations=list(_Line.iterations(lines[1:], where)))


class _Line:
    @staticmethod
    def header(line: str, where: str) -> Header:
        try:
            return Header.model_validate_json(line)
        except ValueError as error:
            raise InputError(f"{where} line 1 is not a throughput header: {_reason(error)}", fix="rerun the train stage") from None

    @staticmethod
    def iterations(lines: Iterable[str], where: str) -> Iterable[Iteration]:
        for number, line in enumerate(lines, start=2):
            try:
                yield _parse_iteration(line)
            except (ValueError, InputError) as error:
                raise InputError(f"{where} line {number} is not an iteration: {_reason(error)}", fix="rerun the train stage") from None


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part)[:60] for part in fault['loc'][:12]) or 'it'}: {fault['msg'][:400]}"
    return str(error)


def _parse_iteration(line: str) -> Iteration:
    data = read_json(line, where="it")
    if isinstance(data, dict):
        for derived in ("samples_per_s", "tokens_per_s"):
            data.pop(derived, None)
    return Iteration.model_validate(data)
