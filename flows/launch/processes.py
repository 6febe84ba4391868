"""Processes of a stage on this machine: found by their group and by a mark in their environment, and ended.

A stage starts others (Ray's daemons, data loaders) and some leave its process group. Every one inherits the variable
``HETRL_STAGE_RUN``, so all of them can be found as long as /proc is there; elsewhere only the group is known.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flows.launch.owner import Owner

VARIABLE = "HETRL_STAGE_RUN"
_POLL_S = 0.05
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
    """A stage's process, leader of its own session and process group, and everything that came from it."""

    def __init__(self, command: list[str], *, cwd: Path, env: dict[str, str], mark: Mark) -> None:
        self._mark = mark
        self._process = subprocess.Popen(command, cwd=cwd, env={**env, VARIABLE: mark.to_json()}, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None and self._process.stderr is not None
        self.streams = {"stdout": self._process.stdout.fileno(), "stderr": self._process.stderr.fileno()}

    @property
    def pid(self) -> int:
        return self._process.pid

    def leader_ended(self) -> bool:
        """Whether the stage's own process has ended. It stays unreaped, so its group's number cannot be given to another."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ask_to_stop(self) -> None:
        """SIGTERM to the whole group."""
        self._signal(signal.SIGTERM)

    def end(self) -> int:
        """End whatever is left, close the streams, and return the leader's status (negative: the signal)."""
        if not self.leader_ended():
            self._signal(signal.SIGKILL)
        self._end_rest()
        returncode = self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return returncode

    def _end_rest(self) -> None:
        """Members of the group and marked strays: SIGTERM, a short grace, SIGKILL."""
        end_marked(lambda mark: mark.token == self._mark.token, leave=self.pid)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


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
