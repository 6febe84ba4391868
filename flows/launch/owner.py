"""Whose a stage is: the process that launched it, so that a sweep can tell an orphan from a stage somebody waits for."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """A process of a machine. ``started`` (clock ticks since boot) and ``boot`` tell it from a later one with its pid."""

    host: str
    pid: int
    started: int
    boot: str

    @classmethod
    def here(cls) -> Owner:
        return cls(host=socket.gethostname(), pid=os.getpid(), started=_started(os.getpid()) or 0, boot=_boot())

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner written by :meth:`to_json`, or None when it is not one of ours."""
        try:
            data = json.loads(text)
            return cls(host=str(data["host"]), pid=int(data["pid"]), started=int(data["started"]), boot=str(data["boot"]))
        except (ValueError, KeyError, TypeError):
            return None

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def is_local(self) -> bool:
        return self.host == socket.gethostname()

    def is_alive(self) -> bool:
        """Whether the process still runs on this machine (ask only when :meth:`is_local`)."""
        if self.boot and self.boot != _boot():
            return False
        if not Path("/proc/self/stat").exists():
            return _answers(self.pid)
        return _started(self.pid) == self.started


def _started(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when it is gone, a zombie, or there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the command's name may hold blanks and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
