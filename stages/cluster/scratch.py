"""The folder Ray keeps its sockets and logs in: short (AF_UNIX paths hold 107 bytes), locked while in use, swept when not."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "hetrl-ray-"
_LOCK = "in-use"
_KEPT_LOG_BYTES = 2**20


def _base() -> Path:
    """Not TMPDIR when /tmp will do: what a person sets as TMPDIR is often too long for a socket."""
    return Path("/tmp") if os.access("/tmp", os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A fresh folder, removed at the end. Folders whose owner was killed are removed first."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base()))
    with open(folder / _LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    for folder in _base().glob(PREFIX + "*"):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            with open(folder / _LOCK) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


def keep_logs(scratch: Path, workdir: Path) -> Path | None:
    """Copy the ends of Ray's logs to ``workdir/ray-logs``, for whoever looks into a failure; None when there are none."""
    logs = sorted(scratch.glob("session_2*/logs/*"))
    if not logs:
        return None
    target = workdir / "ray-logs"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for log in logs:
            if log.is_file() and log.stat().st_size:
                with open(log, "rb") as source:
                    source.seek(max(0, log.stat().st_size - _KEPT_LOG_BYTES))
                    (target / log.name).write_bytes(source.read())
    except OSError:
        return None
    return target
