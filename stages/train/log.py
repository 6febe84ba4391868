"""The throughput log on disk while a run goes on: every line is complete before the next begins."""

from __future__ import annotations

from pathlib import Path

from artifacts.throughput import Header, Iteration, Throughput

FILE = "throughput.jsonl"


class ThroughputLog:
    """Header first, then a line an iteration, each flushed: a run that dies leaves what it measured."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header
        self._iterations: list[Iteration] = []
        path.write_text(header.model_dump_json(exclude_none=True) + "\n", encoding="utf-8")

    def add(self, iteration: Iteration) -> None:
        self._iterations.append(iteration)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(iteration.model_dump_json(exclude_none=True) + "\n")

    @property
    def content(self) -> Throughput:
        return Throughput(header=self._header, iterations=list(self._iterations))

    @property
    def path(self) -> Path:
        return self._path
