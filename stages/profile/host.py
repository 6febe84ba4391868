"""This machine: its name, its lasting identity, and what of it a process may use (cores and memory, container limits included)."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

from stages.profile import cgroup

_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


@dataclass(frozen=True)
class Host:
    """``memory_bytes`` and ``cores`` are what this process may use; ``cpu_name`` is "" where the system does not say; ``quota`` is the
    container's limit in cores' worth of time, where it has one (``cores`` are then the whole ones in it, at least one)."""

    name: str
    identity: str
    cores: int
    memory_bytes: int
    cpu_name: str
    quota: float | None = None


def this_host(name: str = "") -> Host:
    """The machine this runs on, under ``name`` or its host name."""
    safe = safe_name(name or socket.gethostname())
    return Host(name=safe, identity=_identity(safe), cores=_cores(), memory_bytes=_memory_bytes(), cpu_name=_cpu_name(),
                quota=cgroup.cpu_quota())


def safe_name(text: str) -> str:
    """``text`` with what a name may not hold replaced by '-'."""
    name = re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9._-]+", "-", text)).strip("-._")[:100]
    return name or "machine"


def device_uuid(host: Host, kind: str, index: int) -> str:
    """A lasting name for a device that has none of its own. A digest: the machine's id itself is nobody else's business."""
    return f"{kind.upper()}-{uuid.UUID(bytes=hashlib.sha256(f'hetrl/{host.identity}/{kind}/{index}'.encode()).digest()[:16])}"


def _identity(name: str) -> str:
    for path in _MACHINE_IDS:
        text = _read(path)
        if text:
            return text
    return f"{name}/{uuid.getnode():012x}"


def _cores() -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota()
    return max(1, min(allowed, int(quota)) if quota else allowed)


def _memory_bytes() -> int:
    total = int(psutil.virtual_memory().total)
    limit = cgroup.memory_limit()
    return min(total, limit) if limit else total


def _cpu_name() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return found.group(1).strip() if found else ""


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
