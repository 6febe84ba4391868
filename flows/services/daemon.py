"""A long-running process of ours: started detached, found again by a small state file, stopped by its own id."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from artifacts.errors import RunnerUnavailable, StageTimeout

STOP_S = 15.0


@dataclass(frozen=True)
class Daemon:
    """``created_s`` tells its pid from that of a later process."""

    name: str
    pid: int
    created_s: float

    def process(self) -> psutil.Process | None:
        return process_of(self.pid, self.created_s)

    def stop(self) -> bool:
        """End it and what it started; False: it was not running."""
        process = self.process()
        if process is None:
            return False
        family = [process, *process.children(recursive=True)]
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(family, timeout=STOP_S)
        for left in alive:
            with suppress(psutil.NoSuchProcess):
                left.kill()
        psutil.wait_procs(alive, timeout=STOP_S)
        return True


def process_of(pid: int, created_s: float) -> psutil.Process | None:
    """The running process of that id, if it is the one that was created then and not a later one."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created_s) < 2
        # Of a killed process the first thread is a zombie at once; its ports are free when the last thread has gone.
        ended = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.Error:
        return None
    return process if same and not ended else None


def find(folder: Path, name: str) -> Daemon | None:
    """The running daemon of that name, whoever started it."""
    try:
        state = json.loads((folder / f"{name}.json").read_text())
        daemon = Daemon(name, int(state["pid"]), float(state["created_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return daemon if daemon.process() else None


def start(folder: Path, name: str, command: Sequence[str], *, env: dict[str, str], cwd: Path, ready: Callable[[], bool],
          wait_s: float) -> Daemon:
    """Start it detached with its output in ``<folder>/<name>.log`` and wait until ``ready``; one that runs already is returned.

    Raises ``StageTimeout`` when it is not ready in time, ``RunnerUnavailable`` with its last line when it ended.
    """
    folder.mkdir(parents=True, exist_ok=True)
    running = find(folder, name)
    if running is None:
        with (folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True, preexec_fn=_default_signals)
        process.returncode = 0  # psutil waits for it from here on
        running = Daemon(name, process.pid, psutil.Process(process.pid).create_time())
        (folder / f"{name}.json").write_text(json.dumps({"pid": running.pid, "created_s": running.created_s}))
    deadline = time.monotonic() + wait_s
    while not ready():
        if running.process() is None:
            raise RunnerUnavailable(f"{name} ended while starting: {last_line(folder / f'{name}.log')}",
                                    fix=f"look into {folder}/{name}.log")
        if time.monotonic() > deadline:
            running.stop()
            raise StageTimeout(f"{name} was not ready within {wait_s:.0f} s", fix=f"look into {folder}/{name}.log")
        time.sleep(0.2)
    return running


def last_line(path: Path) -> str:
    with suppress(OSError):
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"
    return "it said nothing"


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background shell leaves SIGINT ignored, and a worker is stopped by it
