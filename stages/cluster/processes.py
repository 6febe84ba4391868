"""Which processes belong to a cluster of ours, and their end. Nothing else is ever signalled."""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil

MARK = "HETRL_RAY_CLUSTER"


def marked(token: str) -> list[psutil.Process]:
    """Processes that were started with our mark in their environment (also orphans); those of other users are not ours."""
    wanted = f"{MARK}={token}".encode()
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as environ:
                if wanted in environ.read().split(b"\0"):
                    found.append(process)
        except OSError:
            continue
    return found


def family(pids: Iterable[int]) -> list[psutil.Process]:
    """The processes and all their descendants. Ray's agents overwrite their environment: only descent tells whose they are."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            for one in [process, *process.children(recursive=True)]:
                found[one.pid] = one
        except psutil.NoSuchProcess:
            continue
    return list(found.values())


def end(processes: Iterable[psutil.Process], *, grace_s: float) -> None:
    """SIGTERM, then after ``grace_s`` SIGKILL, and wait until they are gone. A reused pid is never hit (psutil compares start times)."""
    alive = [p for p in processes if p.is_running()]
    for how in ("terminate", "kill"):
        for process in alive:
            try:
                getattr(process, how)()
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(alive, timeout=grace_s)
        alive = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not alive:
            return
