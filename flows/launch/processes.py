"""Processes of a stage on this machine: found by their group and by a mark in their environment, and ended.

A stage starts others (Ray's daemons, data loaders) and some leave its process group. Every one inherits the variable
``HETRL_STAGE_RUN``, so all of them can be found as long as /proc is there; elsewhere only the group is known.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flows.launch.output import Output
from flows.launch.owner import Owner

VARIABLE = "HETRL_STAGE_RUN"
_POLL_S = 0.05
_DRAIN_S = 1.0
_STRAY_GRACE_S = 2.0


@dataclass(frozen=True)
class Mark:
    """What ``HETRL_STAGE_RUN`` says: the run, the stage, who launched it, and a token of this one launch."""

    run_id: str
    stage: str
    token: str
    owner: Owner

    @classmethod
    def new(cls, run_id: str, stage: str) -> Mark:
        return cls(run_id=run_id, stage=stage, token=uuid.uuid4().hex, owner=Owner.here())

    @classmethod
    def parse(cls, text: str) -> Mark | None:
        try:
            data = json.loads(text)
            owner = Owner.parse(data["owner"])
            return cls(run_id=str(data["run"]), stage=str(data["stage"]), token=str(data["token"]), owner=owner) if owner else None
        except (ValueError, KeyError, TypeError):
            return None

    def to_json(self) -> str:
        return json.dumps({"run": self.run_id, "stage": self.stage, "token": self.token, "owner": self.owner.to_json()})


class Group:
    """A stage's process, leader of its own session and process group, and everything that came from it (a ``Running``)."""

    def __init__(self, command: list[str], *, cwd: Path, env: dict[str, str], mark: Mark) -> None:
        self._mark = mark
        self._process = subprocess.Popen(command, cwd=cwd, env={**env, VARIABLE: mark.to_json()}, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self._selector = selectors.DefaultSelector()
        for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, name)

    def read(self, output: Output, timeout_s: float) -> None:
        if not self._selector.get_map():
            time.sleep(min(timeout_s, _POLL_S))  # both streams are closed, the stage is about to end
        else:
            self._read(output, timeout_s)

    def ended(self) -> bool:
        """The stage's process stays unreaped until :meth:`end`, so its group's number cannot be given to another before."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def drain(self, output: Output) -> None:
        """Take what is still in the pipes. A child that keeps them open and writes on is not waited for."""
        until = time.monotonic() + _DRAIN_S
        while time.monotonic() < until and self._read(output, 0.0):
            pass

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def end(self) -> int:
        if not self.ended():
            self._signal(signal.SIGKILL)
        end_marked(lambda mark: mark.token == self._mark.token, leave=self._process.pid)
        self._signal(signal.SIGKILL)  # members of the group that lost the mark, or where there is no /proc
        returncode = self._process.wait()
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return returncode

    def reason(self) -> str:
        return ""

    def _read(self, output: Output, timeout_s: float) -> bool:
        """One round; whether anything came."""
        got = False
        for key, _ in self._selector.select(timeout_s) if self._selector.get_map() else ():
            data = os.read(key.fd, 1 << 16)
            if data:
                output.feed(key.data, data)
                got = True
            else:
                self._selector.unregister(key.fileobj)
        return got

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def end_marked(wanted: Callable[[Mark], bool], *, leave: int = 0) -> list[str]:
    """End all processes whose mark is ``wanted`` (but not pid ``leave``): SIGTERM, a short grace, SIGKILL.

    Returns a line for each: ``train of run r1 (pid 77)``.
    """
    ended: dict[int, str] = {}
    deadline = time.monotonic() + _STRAY_GRACE_S
    number = signal.SIGTERM
    while True:
        left = [(pid, mark) for pid, mark in marked() if wanted(mark) and pid not in (leave, os.getpid())]
        if not left:
            return list(ended.values())
        for pid, mark in left:
            if pid not in ended or number == signal.SIGKILL:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            ended[pid] = f"{mark.stage} of run {mark.run_id or '?'} (pid {pid})"
        if time.monotonic() > deadline:
            if number == signal.SIGKILL:
                return list(ended.values())
            number, deadline = signal.SIGKILL, deadline + _STRAY_GRACE_S
        time.sleep(_POLL_S)


def marked() -> Iterator[tuple[int, Mark]]:
    """The live processes of this user that carry a mark."""
    key = f"{VARIABLE}=".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()  # empty for a zombie
        except OSError:
            continue
        for entry in environment.split(b"\0"):
            if entry.startswith(key):
                mark = Mark.parse(entry[len(key):].decode("utf-8", "replace"))
                if mark:
                    yield int(folder.name), mark
