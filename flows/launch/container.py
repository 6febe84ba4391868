"""A stage's container from its start to its removal."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from docker.errors import NotFound
from docker.models.containers import Container

from flows.launch.base import GRACE_S
from flows.launch.engine import ENGINE_ERRORS
from flows.launch.output import Output

_WAIT_S = 30
Piece = tuple[bytes | None, bytes | None]
"""What came from (stdout, stderr)."""


class RunningContainer:
    """A started container (a ``Running``). A thread reads its output, so that this one never blocks for long."""

    def __init__(self, container: Container, *, memory: str | None) -> None:
        self._container = container
        self._memory = memory
        self._reason = ""
        self._ended = False
        self._closed = threading.Event()
        self._pieces: queue.Queue[Piece | None] = queue.Queue(maxsize=256)
        stream = container.attach(stdout=True, stderr=True, stream=True, logs=True, demux=True)  # before the start: nothing is missed
        self._thread = threading.Thread(target=self._pump, args=(stream,), name=f"output of {container.name}", daemon=True)
        self._thread.start()
        try:
            container.start()
        except BaseException:
            self._closed.set()
            raise

    def read(self, output: Output, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not self._ended:
            try:
                piece = self._pieces.get(timeout=max(0.0, until - time.monotonic()) or 0.001)
            except queue.Empty:
                return
            self._take(piece, output)
            if time.monotonic() >= until:
                return

    def ended(self) -> bool:
        return self._ended

    def drain(self, output: Output) -> None:
        with suppress(queue.Empty):
            while not self._ended:
                self._take(self._pieces.get_nowait(), output)

    def ask_to_stop(self) -> None:
        with suppress(*ENGINE_ERRORS):
            self._container.kill("SIGTERM")

    def end(self) -> int:
        """Kill it if it still runs, look at how it ended, remove it."""
        returncode = 125
        try:
            if not self._ended:
                with suppress(*ENGINE_ERRORS):
                    self._container.kill("SIGKILL")
            returncode = int(self._container.wait(timeout=_WAIT_S)["StatusCode"])
            self._container.reload()
            state = self._container.attrs["State"]
            if state.get("OOMKilled"):
                self._reason = f"ran out of memory (limit {self._memory or 'of the engine'})"
            elif state.get("Error"):
                self._reason = f"could not run: {state['Error']}"
        except NotFound:
            self._reason = "was lost: its container was removed by somebody else"
        except ENGINE_ERRORS:
            self._reason = "was lost: the Docker engine went away"
        finally:
            self._closed.set()
            with suppress(*ENGINE_ERRORS):
                self._container.remove(force=True, v=True)
        return returncode

    def reason(self) -> str:
        return self._reason

    def _take(self, piece: Piece | None, output: Output) -> None:
        if piece is None:
            self._ended = True
            return
        stdout, stderr = piece
        if stdout:
            output.feed("stdout", stdout)
        if stderr:
            output.feed("stderr", stderr)

    def _pump(self, stream: Iterator[Piece]) -> None:
        """Queue pieces of output until the container has ended (or nobody listens any more), then None."""
        with suppress(*ENGINE_ERRORS, OSError, ValueError):
            for piece in stream:
                self._put(piece)
                if self._closed.is_set():
                    break
        self._put(None)

    def _put(self, piece: Piece | None) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                return self._pieces.put(piece, timeout=0.5)


def stop_and_remove(container: Container, grace_s: float = GRACE_S) -> str:
    """Stop a container with a grace and remove it; its name. One that is gone already is fine."""
    with suppress(*ENGINE_ERRORS):
        container.stop(timeout=round(grace_s))
    with suppress(*ENGINE_ERRORS):
        container.remove(force=True, v=True)
    return str(container.name)
