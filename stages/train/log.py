"""The throughput log on disk while a run goes on: every line is complete before the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.throughput import Header, Iteration, Throughput

FILE = "throughput.jsonl"


class ThroughputLog:
    """Header first, then a line an iteration, each flushed: a run that dies leaves what it measured.

    ``earlier`` are the iterations of the run that this one goes on from.
    """

    def __init__(self, path: Path, header: Header, earlier: Sequence[Iteration] = ()) -> None:
        self._path = path
        self._content = Throughput(header=header, iterations=list(earlier))
        path.write_text(self._content.to_jsonl(), encoding="utf-8")

    def add(self, iteration: Iteration) -> None:
        self._content.iterations.append(iteration)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(iteration.model_dump_json(exclude_none=True) + "\n")

    @property
    def content(self) -> Throughput:
        return self._content
