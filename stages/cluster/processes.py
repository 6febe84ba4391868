"""The end of processes that are ours: all below one root. Nothing else is ever signalled."""

from __future__ import annotations

import time

import psutil


def end_descendants(root: psutil.Process, *, grace_s: float) -> None:
    """SIGTERM, then after ``grace_s`` SIGKILL, to all below ``root``, until there are none (or ten graces have passed)."""
    until, how = time.monotonic() + 10 * grace_s, "terminate"
    while time.monotonic() < until:
        try:
            alive = [p for p in root.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
        except psutil.NoSuchProcess:
            return
        if not alive:
            return
        for process in alive:
            try:
                getattr(process, how)()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(alive, timeout=grace_s)
        how = "kill"
