"""What a stage prints, turned into events: lines, the log file, the last lines, the outcome, and the verdict at the end."""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from artifacts.errors import HetrlError, StageCrashed, StageTimeout, from_kind
from artifacts.invocation import Log, Outcome, Progress, parse_event
from artifacts.units import show_seconds
from flows.launch.base import OnEvent

LINE_LIMIT = 4 * 2**20
TAIL_LINES = 30
_SHOWN_CHARS = 300
SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|API_KEY|CREDENTIAL", re.IGNORECASE)


class Lines:
    """Bytes in arbitrary pieces → lines of text. Bad UTF-8 is replaced; a line over the limit is cut, and says so."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        self._cut = 0

    def feed(self, data: bytes) -> Iterator[str]:
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._hold(part)
            yield self._take()
        self._hold(rest)

    def flush(self) -> Iterator[str]:
        """The last line, when the output did not end with a line end."""
        if self._held:
            yield self._take()

    def _hold(self, part: bytes) -> None:
        room = self._limit - len(self._held)
        self._held += part[:room]
        self._cut += max(0, len(part) - room)

    def _take(self) -> str:
        text = self._held.decode("utf-8", "replace").rstrip("\r")
        text = text.rpartition("\r")[2]  # a progress bar overwrites its line: keep what a terminal would show last
        if self._cut:
            text += f" … ({self._cut} bytes cut)"
        self._held.clear()
        self._cut = 0
        return text


class Output:
    """Follows one stage's two streams.

    Values of secret variables (this process's, and those of the stage's own ``environment``) are blanked before anybody sees
    the line. The log file gets every line.
    """

    def __init__(self, stage: str, on_event: OnEvent, log_path: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.stage = stage
        self.outcome: Outcome | None = None
        self.log_path = log_path
        self._on_event = on_event
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._lines = {"stdout": Lines(), "stderr": Lines()}
        self._secrets = secret_values(environment or {})
        log_path.unlink(missing_ok=True)  # never written through a link that an earlier stage left there
        self._log = log_path.open("x", encoding="utf-8", errors="replace", buffering=1)

    @property
    def tail(self) -> list[str]:
        return list(self._tail)

    def feed(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        for line in self._lines[stream].feed(data):
            self._line(stream, line)

    def mute(self) -> None:
        """Stop telling anybody: the caller is unwinding and must not be called back. The log file still gets everything."""
        self._on_event = lambda event: None

    def close(self) -> None:
        """Take in unfinished last lines and close the log; safe to call twice."""
        if self._log.closed:
            return
        try:
            for stream, lines in self._lines.items():
                for line in lines.flush():
                    self._line(stream, line)
        finally:
            self._log.close()

    def note(self, level: Literal["debug", "info", "warning", "error"], message: str) -> None:
        """Something the runner itself has to say."""
        self._on_event(Log(level=level, message=message))

    def _line(self, stream: str, line: str) -> None:
        line = blank(line, self._secrets)
        if not self._log.closed:
            self._log.write(line + "\n")
        event = parse_event(line) if stream == "stdout" else Log(level="debug", message=line)
        if isinstance(event, Outcome):
            self.outcome = event
        shown = event.message.strip()
        if shown and not isinstance(event, (Outcome, Progress)):
            self._tail.append(shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + " …")
        self._on_event(event)

    # --- the verdict -------------------------------------------------------------------------------------------------

    def timeout(self, timeout_s: float) -> StageTimeout:
        return StageTimeout(
            f"stage {self.stage} did not finish within {show_seconds(timeout_s)} and was stopped{self._last()}",
            fix=f"allow it more time, or read {self.log_path}", details=self._details(),
        )

    def failure(self, returncode: int, *, reason: str = "") -> HetrlError | None:
        """The error of a stage that has ended, or None when it succeeded. ``reason`` is what the runner knows of its end."""
        outcome = self.outcome
        if outcome is None:
            why = reason or describe_exit(returncode)
            return StageCrashed(f"stage {self.stage} {why} without an outcome{self._last()}",
                                fix=f"read {self.log_path}", details={**self._details(), "returncode": returncode})
        if outcome.status == "error":
            message = outcome.message or f"stage {self.stage} failed without saying why{self._last()}"
            return from_kind(outcome.kind, message, fix=outcome.fix, details={**self._details(), **outcome.details})
        if returncode != 0:
            self.note("warning", f"stage {self.stage} published {outcome.version} and then {reason or describe_exit(returncode)}")
        return None

    def _last(self) -> str:
        return "; last lines: " + " | ".join(self.tail[-3:]) if self._tail else "; it printed nothing"

    def _details(self) -> dict[str, object]:
        return {"stage": self.stage, "log": str(self.log_path), "last_lines": self.tail}


def describe_exit(returncode: int) -> str:
    """``exited with status 3``, or the signal that ended it (a negative code, or a shell's 128 + n)."""
    number = -returncode if returncode < 0 else returncode - 128 if returncode > 128 else 0
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"exited with status {returncode}"
    hint = " (often the kernel, out of memory)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def blank(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Values of secret variables, here or in ``environment``; short ones are left out, they match by chance."""
    variables = [*os.environ.items(), *environment.items()]
    found = {value for name, value in variables if SECRET_NAME.search(name) and len(value) >= 8}
    return sorted(found, key=len, reverse=True)
