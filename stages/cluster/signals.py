"""SIGTERM while Ray runs in this process.

``ray.init`` puts its own handler in place (it exits), and Ray's compiled waits turn any exception but ``KeyboardInterrupt``
into a ``SystemError`` long after the signal. So while a cluster is open the handler that was there before is asked what to
do, and what it raises reaches Ray as ``KeyboardInterrupt``, which unwinds at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignal:
    """The handler of SIGTERM to be kept alive across Ray's own ideas about it."""

    def __init__(self) -> None:
        self._main = threading.current_thread() is threading.main_thread()
        self._held = self._pending = False
        self._before = signal.getsignal(signal.SIGTERM) if self._main else None

    def claim(self) -> None:
        """Put our handler in place (again), unless a SIGTERM came already. Off the main thread there is nothing to do."""
        if self._main and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, self._stop)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Teardown is finished before a signal that arrives during it is followed."""
        self._held = True
        self.claim()
        try:
            yield
        finally:
            self._held = False
            if self._pending:
                self._pending = False
                self._stop(signal.SIGTERM, None)

    def restore(self) -> None:
        if self._main and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        if self._held:
            self._pending = True
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if callable(self._before):
            try:
                self._before(signum, frame)
            except BaseException as stop:
                raise KeyboardInterrupt from stop
        raise KeyboardInterrupt


@contextmanager
def stop_signal() -> Iterator[StopSignal]:
    """SIGTERM raises ``KeyboardInterrupt`` inside the block. After a SIGTERM it stays ignored: whoever got it is unwinding."""
    handler = StopSignal()
    handler.claim()
    try:
        yield handler
    finally:
        handler.restore()
