"""What every runner of stages offers, and what a finished stage gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from artifacts.invocation import Log, Outcome, Progress, StageRequest

OnEvent = Callable[[Log | Progress | Outcome], None]

GRACE_S = 10.0
"""How long a stage has between the request to stop (SIGTERM) and the end (SIGKILL)."""

EXIT_GRACE_S = 30.0
"""How long a stage may take to exit once it has told its outcome: engines sometimes hang in their shutdown."""


@dataclass(frozen=True)
class RunResult:
    """A stage that succeeded; one that did not raises instead."""

    outcome: Outcome
    returncode: int
    seconds: float
    tail: list[str]


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine that the stage may see at ``target``."""

    source: Path
    target: str
    read_only: bool = True


class StageRunner(Protocol):
    """Starts a stage, relays its events, and leaves nothing of it running."""

    name: str

    def code_digest(self, stage: str) -> str:
        """Digest of the code this runner would run for ``stage``. Raises ``InputError`` when there is no such stage."""
        ...

    def image_digest(self, stage: str) -> str:
        """The image it would run in; "" where there is none. Raises ``RunnerUnavailable`` when the image is missing."""
        ...

    def run(self, request: StageRequest, *, on_event: OnEvent, timeout_s: float | None = None,
            extra_mounts: Sequence[Mount] = (), labels: Mapping[str, str] | None = None) -> RunResult:
        """Run the stage to its end.

        ``on_event`` is called in this thread for every event, the outcome included. Whatever ends this call early (an
        exception in ``on_event``, Ctrl-C, a cancellation) also ends the stage, and is raised on. ``labels`` say whose
        run this is where the runner can attach them; they must hold no secret.

        Raises the error the stage reported, ``StageTimeout``, ``StageCrashed`` (ended without an outcome) or
        ``RunnerUnavailable`` (could not be started).
        """
        ...

    def stop_run(self, run_id: str) -> list[str]:
        """Stop what is left of a run, whoever started it; the names of what was stopped."""
        ...

    def sweep(self) -> list[str]:
        """Stop what runs of this machine left behind when their process died; the names of what was stopped."""
        ...
