"""Steps of a stage that follow each other: shown as progress, and timed."""

from __future__ import annotations

import time

from stages.contract import StageContext


class Steps:
    """``begin`` ends the step before. Seconds by step are what :meth:`end` returns."""

    def __init__(self, context: StageContext, *, total: int) -> None:
        self._context, self._total = context, total
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def begin(self, name: str, message: str) -> None:
        self._close()
        self._started[name] = time.monotonic()
        self._context.progress(len(self._started) - 1, self._total, message)

    def end(self, message: str) -> dict[str, float]:
        self._close()
        self._context.progress(self._total, self._total, message)
        return dict(self._seconds)

    def _close(self) -> None:
        if self._started:
            last = next(reversed(self._started))
            self._seconds[last] = time.monotonic() - self._started[last]
