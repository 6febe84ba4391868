"""Following a started stage to its end: its output, its deadline, its stop, its verdict. The same for every runner."""

from __future__ import annotations

import time
from typing import Protocol

from flows.launch.base import RunResult
from flows.launch.output import Output

POLL_S = 0.2
"""How long one read may block: also how soon an exception that another thread throws into this one can land."""


class Running(Protocol):
    """A stage that has been started."""

    def read(self, output: Output, timeout_s: float) -> None:
        """Hand over what it printed, waiting at most ``timeout_s`` for it."""
        ...

    def ended(self) -> bool:
        """Whether the stage's own process has ended."""
        ...

    def drain(self, output: Output) -> None:
        """Hand over what is still on the way after the end."""
        ...

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        ...

    def end(self) -> int:
        """End and remove whatever is left of it, and return its exit status (negative, or 128 + n: a signal). Never raises."""
        ...

    def reason(self) -> str:
        """What is known of its end beyond the exit status: ``ran out of memory (limit 2 GiB)``; "" when nothing."""
        ...


def follow(running: Running, output: Output, *, timeout_s: float | None, grace_s: float, exit_grace_s: float) -> RunResult:
    """The result of the stage, or the error it ended with; see :class:`flows.launch.base.StageRunner`.

    A version published while the stage was being stopped counts: the work is done and in the store.
    """
    started = time.monotonic()
    deadline = None if timeout_s is None else started + timeout_s
    try:
        try:
            timed_out = _until_end(running, output, deadline=deadline, grace_s=grace_s, exit_grace_s=exit_grace_s)
        except BaseException:
            output.mute()
            _stop(running, output, grace_s)
            raise
        finally:
            returncode = running.end()
    finally:
        output.close()
    published = output.outcome is not None and output.outcome.status == "ok"
    if timed_out and timeout_s is not None and not published:
        raise output.timeout(timeout_s)
    error = output.failure(returncode, reason=running.reason())
    if error is not None:
        raise error
    assert output.outcome is not None
    return RunResult(outcome=output.outcome, returncode=returncode, seconds=time.monotonic() - started, tail=output.tail)


def _until_end(running: Running, output: Output, *, deadline: float | None, grace_s: float, exit_grace_s: float) -> bool:
    """Relay the output until the stage has ended; True when it had to be stopped at its deadline."""
    told: float | None = None  # when the outcome was seen
    while True:
        running.read(output, POLL_S)
        now = time.monotonic()
        if running.ended():
            running.drain(output)
            return False
        if deadline is not None and now >= deadline:
            _stop(running, output, grace_s)
            return True
        if told is None and output.outcome is not None:
            told = now
        if told is not None and now - told > exit_grace_s:
            output.note("warning", f"stage {output.stage} told its outcome but does not exit; it is stopped")
            _stop(running, output, grace_s)
            return False


def _stop(running: Running, output: Output, grace_s: float) -> None:
    """SIGTERM, then up to the grace for the stage to end by itself, its output still taken in."""
    running.ask_to_stop()
    until = time.monotonic() + grace_s
    while time.monotonic() < until and not running.ended():
        running.read(output, POLL_S)
    running.drain(output)
