"""How every stage is invoked, reports progress and fails.

``python -m stages.<name> --request request.json``: the request names the store, the inputs by version, the parameters and the
version to write. Events go to standard output as JSON lines, the last one is the outcome; everything libraries print goes to
standard error. The exit status is the error's kind. SIGTERM stops within ten seconds and leaves no half version.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, TypeVar

from pydantic import BaseModel, ValidationError

from artifacts.base import Document, Strict, describe
from artifacts.errors import HetrlError, InputError
from artifacts.invocation import Log, Outcome, Progress, StageRequest
from artifacts.manifest import Manifest, Producer, VersionRef
from artifacts.store import Store, VersionWriter, open_store
from artifacts.version import hetrl_version

D = TypeVar("D", bound=Document)
P = TypeVar("P", bound=Strict)

LAUNCHER = "HETRL_STAGE_LAUNCHER"
"""The process whose end is this stage's, too: its id, from whoever launched it as a child."""
_PR_SET_PDEATHSIG = 1


class Stopped(BaseException):
    """SIGTERM arrived: unwind, clean up, write nothing more."""


class _LastWord:
    """The outcome of this process's stage, said once: by the stage, or by a thread that sees that the stage will not come to it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._said = threading.Lock()

    def say(self, outcome: Outcome) -> bool:
        """False where it was said before."""
        if not self._said.acquire(blocking=False):
            return False
        with suppress(BrokenPipeError):  # who launched it was killed
            self._out.write(outcome.model_dump_json() + "\n")
            self._out.flush()
        return True


_last_word: list[_LastWord] = []
"""That of the stage this process runs, if it runs one."""


class StageContext:
    """What a stage works with: its inputs, its scratch folder, its voice, and the version it writes."""

    def __init__(self, request: StageRequest, *, store: Store, out: TextIO) -> None:
        self.request = request
        self.store = store
        self.workdir = Path(request.workdir)
        self._out = out
        self._lock = threading.Lock()
        self._started = datetime.now(UTC)
        self._writer: VersionWriter | None = None

    # -- inputs ---------------------------------------------------------------------------------------------------
    def has(self, name: str) -> bool:
        return name in self.request.inputs

    def input_ref(self, name: str) -> VersionRef:
        try:
            return self.request.inputs[name]
        except KeyError:
            raise InputError(f"stage {self.request.stage} needs input {name!r}, which the request does not name",
                             fix="run the stages before it first") from None

    def read(self, cls: type[D]) -> D:
        """The input document of that kind, verified against its manifest."""
        return self.store.read(self.input_ref(cls.artifact), cls)

    def read_optional(self, cls: type[D]) -> D | None:
        return self.read(cls) if self.has(cls.artifact) else None

    def read_context(self, cls: type[D]) -> list[tuple[VersionRef, D]]:
        """Earlier versions the request offers for comparison, newest first; one that is gone or damaged is left out, said so."""
        found = []
        for ref in self.request.context.get(cls.artifact, []):
            try:
                found.append((ref, self.store.read(ref, cls)))
            except HetrlError as error:
                self.log(f"left out {ref}: {error.message}", level="warning")
        return found

    def parameters(self, model: type[P]) -> P:
        try:
            return model.model_validate(self.request.parameters)
        except ValidationError as error:
            raise InputError(describe(error, where=f"parameters of stage {self.request.stage}", model=model)) from None

    # -- voice ----------------------------------------------------------------------------------------------------
    def emit(self, event: BaseModel) -> None:
        with self._lock:
            self._out.write(event.model_dump_json() + "\n")
            self._out.flush()

    def log(self, message: str, *, level: str = "info") -> None:
        self.emit(Log(level=level, message=message))  # type: ignore[arg-type]

    def progress(self, done: float, total: float, message: str = "", **values: float) -> None:
        self.emit(Progress(done=done, total=total, message=message, values=values))

    # -- output ---------------------------------------------------------------------------------------------------
    @property
    def writer(self) -> VersionWriter:
        """The version being written; invisible to everyone until :func:`main` commits it."""
        if self._writer is None:
            self._writer = self.store.new_version(self.request.stage, self.request.version)
        return self._writer

    def write(self, document: Document) -> None:
        self.writer.put_document(document)

    def write_bytes(self, name: str, data: bytes, *, identity: str | None = None) -> None:
        self.writer.put_bytes(name, data, identity=identity)

    def commit(self, summary: dict[str, Any]) -> Manifest:
        request = self.request
        producer = Producer(hetrl=hetrl_version(), code_digest=request.code_digest, image_digest=request.image_digest,
                            host=socket.gethostname(), runner=request.runner, run_id=request.run_id,
                            started_at=self._started, finished_at=datetime.now(UTC))
        manifest = self.writer.commit(inputs=request.inputs, context=request.context, parameters=request.parameters,
                                      summary=summary, producer=producer)
        self.store.publish(manifest.ref)
        return manifest


def main(stage: str, run: Callable[[StageContext], dict[str, Any]], argv: list[str] | None = None) -> None:
    """Run a stage from its request and exit with the status of what happened.

    ``run`` reads its inputs, writes its documents through the context and returns a summary (a few figures).
    """
    parser = argparse.ArgumentParser(prog=f"python -m stages.{stage}", description=f"The {stage} stage of HetRL.",
                                     epilog=f"example: python -m stages.{stage} --request request.json")
    parser.add_argument("--request", required=True, metavar="FILE", help="request of the stage, as JSON")
    arguments = parser.parse_args(argv)
    out = _claim_stdout()
    signal.signal(signal.SIGTERM, _stop)
    _end_with_launcher()
    status: list[int] = []
    atexit.register(_end_at_once, status)
    _last_word.append(_LastWord(out))
    status.append(_run(stage, run, arguments.request, out))
    sys.exit(status[0])


def end_stage(error: HetrlError) -> None:
    """End this process as a stage that failed with ``error``, from a thread: for when the main thread is held by a library that will not
    give it back in time. Nothing is published, nothing cleaned up. Does nothing where the stage has had its last word, or none runs."""
    if _last_word and _last_word[0].say(_failed(error)):
        _end_at_once([error.exit_status])


def _failed(error: HetrlError) -> Outcome:
    return Outcome(status="error", kind=error.kind, message=error.message, fix=error.fix, details=error.details)


def _run(stage: str, run: Callable[[StageContext], dict[str, Any]], request_path: str, out: TextIO) -> int:
    def finish(outcome: Outcome, status: int) -> int:
        if not _last_word[0].say(outcome):
            threading.Event().wait()  # a thread is ending this process
        return status

    try:
        request = StageRequest.read(request_path)
        if request.stage != stage:
            raise InputError(f"{request_path} is a request for stage {request.stage!r}, not {stage!r}",
                             fix=f"run python -m stages.{request.stage}")
        Path(request.workdir).mkdir(parents=True, exist_ok=True)
        context = StageContext(request, store=open_store(request.store, pipeline=request.pipeline), out=out)
        summary = run(context)
        manifest = context.commit(summary)
        return finish(Outcome(status="ok", version=manifest.version, summary=summary), 0)
    except HetrlError as error:
        return finish(_failed(error), error.exit_status)
    except (Stopped, KeyboardInterrupt):
        stopped = Outcome(status="error", kind="StageCrashed", message=f"stage {stage} was stopped; nothing was published")
        return finish(stopped, 143)
    except Exception as error:
        traceback.print_exc()
        broken = Outcome(status="error", kind="StageCrashed", message=f"stage {stage} failed: {type(error).__name__}: {error}",
                         fix="this is a bug or a broken installation; the traceback is in the stage's log")
        return finish(broken, 1)


def _end_at_once(status: list[int]) -> None:
    """The last exit handler (they run in reverse). Python would go on to take torch and verl apart piece by piece: seconds, for nothing."""
    if status:
        logging.shutdown()
        with suppress(BrokenPipeError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status[0])


def _claim_stdout() -> TextIO:
    """Keep standard output for events: whatever else writes to file descriptor 1 goes to standard error."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return out


def _stop(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def _end_with_launcher() -> None:
    """Have the kernel send SIGTERM when the launcher is killed: it cannot end this stage then. Linux; elsewhere the next sweep does."""
    launcher = os.environ.pop(LAUNCHER, "")
    if not launcher:
        return
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if str(os.getppid()) != launcher:  # it was killed before the line above
        sys.exit(143)
