"""Starting probes, talking to them, and ending them on time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self


class ProbeFailed(Exception):
    """A probe gave no answer; the text says which and why."""


class Probe:
    """``python -m stages.profile.probes.<name>``, as a context manager that leaves no process behind.

    A probe prints one JSON object a line: a first one when it is ready (imports done, port open), a second one with its answer
    once it was told to go. What it writes to standard error goes where ours goes.
    """

    def __init__(self, name: str, arguments: Sequence[str] = (), *, deadline_s: float, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"stages.profile.probes.{name}", "--deadline", f"{deadline_s:.3f}", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
        )
        self._arm(deadline_s)

    def _arm(self, deadline_s: float) -> None:
        """The timer ends a read that would otherwise block for ever: killing the process closes its pipe."""
        self.deadline_s = deadline_s
        self._end = time.monotonic() + deadline_s
        self._timer = threading.Timer(deadline_s, self._process.kill)
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> dict[str, Any]:
        """The probe's next object. Raises :class:`ProbeFailed` when it ends or its deadline passes first."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            try:
                answer = json.loads(line)
            except ValueError:
                raise ProbeFailed(f"probe {self.name} answered something that is not JSON: {line[:80]!r}") from None
            if isinstance(answer, dict):
                if "failed" in answer:
                    raise ProbeFailed(f"probe {self.name}: {answer['failed']}")
                return answer
        status = self._process.wait()
        if time.monotonic() >= self._end:
            raise ProbeFailed(f"probe {self.name} did not answer within {self.deadline_s:.0f} s")
        raise ProbeFailed(f"probe {self.name} ended with status {status} before it answered")

    def go(self, word: str = "go", *, within_s: float | None = None) -> None:
        """Tell a probe that is ready to start measuring; ``word`` is what it is told, ``within_s`` a deadline from now on."""
        if within_s is not None:
            self._timer.cancel()
            self._arm(within_s)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # where it has ended already, the next read says so
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()

    def close(self) -> None:
        self._timer.cancel()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # a pipe whose other end is gone has nothing left to flush to
                    pipe.close()
