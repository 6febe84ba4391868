"""Threads that look whether what a stage cannot do without is there, while its main thread waits for Ray."""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from artifacts.errors import StageCrashed
from stages.contract import end_stage

PATIENCE_S = 15.0
"""A stage that was interrupted has so long to clean up and say so itself."""


class Watch(threading.Thread, ABC):
    """Asks again and again. After ``misses`` times no in a row the stage is interrupted as by SIGTERM: what it waits for in Ray, or polls
    for, would come late or never. Where Ray keeps the main thread even so, or cleaning up takes long, the stage is ended from here."""

    def __init__(self, name: str, *, period_s: float, misses: int, patience_s: float = PATIENCE_S) -> None:
        super().__init__(name=name, daemon=True)
        self._period_s, self._misses, self._patience_s = period_s, misses, patience_s
        self._ended = threading.Event()
        self.gone = False

    @abstractmethod
    def answers(self) -> bool:
        """Whether it is there."""

    @abstractmethod
    def lost(self) -> StageCrashed:
        """What to say where it is gone."""

    def run(self) -> None:
        misses = 0
        while not self._ended.wait(self._period_s):
            misses = 0 if self.answers() else misses + 1
            if misses == self._misses:
                self.gone = True
                os.kill(os.getpid(), signal.SIGTERM)
                break
        if self.gone:
            time.sleep(self._patience_s)
            end_stage(self.lost())

    def end(self) -> None:
        self._ended.set()

    def is_gone(self) -> bool:
        """What has failed may have failed for this, before enough misses were counted."""
        self.gone = self.gone or not self.answers()
        return self.gone


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Whatever ends the block in an error ends it in ``watch.lost()`` where that is why. Off the main thread, which no signal interrupts,
    only afterwards.

    Raises:
        StageCrashed: what is watched was lost while the block ran.
    """
    if threading.current_thread() is threading.main_thread():
        watch.start()
    try:
        yield
    except BaseException:
        if watch.is_gone():
            raise watch.lost() from None
        raise
    finally:
        watch.end()
