"""One family of expected errors. Each prints one line and has its own exit status; bugs keep their traceback."""

from __future__ import annotations

from typing import Any, ClassVar


class HetrlError(Exception):
    """An expected failure: what happened (with where), and what the person can do about it.

    ``details`` is machine-readable context (lists of violations, names of machines); it never holds secrets.
    """

    kind: ClassVar[str] = "HetrlError"
    exit_status: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, fix: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = _one_line(message)
        self.fix = _one_line(fix)
        self.details = details or {}

    @property
    def line(self) -> str:
        """The one line a person reads."""
        return f"{self.kind}: {self.message}" + (f" → {self.fix}" if self.fix else "")


def _one_line(text: str) -> str:
    """One line that any terminal shows as it is: what a hostile name holds (escape codes, half of a surrogate pair) is spelt out."""
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class InputError(HetrlError):
    """Something the user wrote (a job, an inventory, an option) cannot be used as it is."""

    kind = "InputError"
    exit_status = 2


class InfeasiblePlan(HetrlError):
    """No plan satisfies the constraints; ``details['violations']`` has all of them, ``fix`` the cheapest mend."""

    kind = "InfeasiblePlan"
    exit_status = 3


class ClusterChanged(HetrlError):
    """The cluster is not the one the plan was made for; the message names what differs."""

    kind = "ClusterChanged"
    exit_status = 4


class ClusterBusy(HetrlError):
    """Another run holds the cluster; the message names the holder and until when."""

    kind = "ClusterBusy"
    exit_status = 5


class StoreError(HetrlError):
    """The object store is unreachable, refuses, or holds something that is not what its manifest says."""

    kind = "StoreError"
    exit_status = 6
    retryable = True


class StageTimeout(HetrlError):
    """Something did not finish by its deadline; the message says what was waited for."""

    kind = "StageTimeout"
    exit_status = 7


class RunnerUnavailable(HetrlError):
    """A stage cannot be started (Docker not installed, not running, no permission, image missing; engine not installed)."""

    kind = "RunnerUnavailable"
    exit_status = 8


class StageCrashed(HetrlError):
    """A stage ended without an outcome (killed, out of memory, a bug); the message holds its last lines."""

    kind = "StageCrashed"
    exit_status = 9


ERRORS: dict[str, type[HetrlError]] = {
    cls.kind: cls
    for cls in (HetrlError, InputError, InfeasiblePlan, ClusterChanged, ClusterBusy, StoreError, StageTimeout,
                RunnerUnavailable, StageCrashed)
}


def from_kind(kind: str, message: str, *, fix: str = "", details: dict[str, Any] | None = None) -> HetrlError:
    """The error a stage reported by its kind, as an exception here; an unknown kind becomes ``StageCrashed``."""
    return ERRORS.get(kind, StageCrashed)(message, fix=fix, details=details)
