"""What the stage asks of an engine, and what an engine tells the stage while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from artifacts.deployment import Deployment
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.throughput import Iteration
from artifacts.topology import Topology


@dataclass(frozen=True)
class Run:
    """One training run: what to train, where, and a scratch folder. ``resume``: a checkpoint that the run goes on from."""

    job: Job
    topology: Topology
    plan: Plan
    deployment: Deployment
    workdir: Path
    resume: Path | None = None


@dataclass(frozen=True)
class Report:
    """How an engine speaks while it runs. ``iteration`` may raise: the engine then stops and lets the error pass.

    ``checkpoint`` takes over a folder from which :attr:`Run.resume` could go on after so many iterations.
    """

    log: Callable[[str], None]
    iteration: Callable[[Iteration], None]
    checkpoint: Callable[[int, Path], None]


@dataclass(frozen=True)
class Result:
    """What is left of a run besides its log: a folder with the actor's final weights (None: the engine exports none), other files."""

    weights: Path | None = None
    files: tuple[Path, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """An engine. ``check`` needs no cluster and raises ``InputError`` naming the rule that a job or plan breaks."""

    name: str

    def versions(self) -> dict[str, str]: ...

    def check(self, run: Run) -> None: ...

    def run(self, run: Run, report: Report) -> Result: ...
