"""The limits of this process's control group, in both versions of the kernel's interface."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")


def cpu_quota() -> float | None:
    """Cores' worth of CPU time the group may use; None: no limit, or unknown."""
    words = read("cpu.max").split() or [read("cpu.cfs_quota_us", controller="cpu"), read("cpu.cfs_period_us", controller="cpu")]
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def memory_limit() -> int | None:
    """Bytes the group may use; None: no limit, or unknown."""
    text = read("memory.max") or read("memory.limit_in_bytes", controller="memory")
    return int(text) if text.isdigit() else None


def throttled_count() -> int:
    """How often the kernel has throttled the group for its CPU quota; 0 where it does not say."""
    found = re.search(r"^nr_throttled (\d+)$", read("cpu.stat") or read("cpu.stat", controller="cpu"), re.MULTILINE)
    return int(found.group(1)) if found else 0


def cpu_used_s() -> float | None:
    """CPU time of all processes of the group so far, seconds; None where the kernel does not say."""
    found = re.search(r"^usage_usec (\d+)$", read("cpu.stat"), re.MULTILINE)
    if found:
        return int(found.group(1)) / 1e6
    text = read("cpuacct.usage", controller="cpuacct") or read("cpuacct.usage", controller="cpu")
    return int(text) / 1e9 if text.isdigit() else None


def read(name: str, *, controller: str = "") -> str:
    """A file of the group, of version 1's ``controller`` or, without one, of version 2; "" where there is none.

    Inside a container the group itself is often mounted as the root of the hierarchy, so both places are tried.
    """
    mount = _MOUNT / controller
    found = re.search(rf"^\d+:(?:[^:]+,)?{controller}(?:,[^:]+)?:(.*)$", _file(Path("/proc/self/cgroup")), re.MULTILINE)
    own = _file(mount / found.group(1).strip("/") / name) if found else ""
    return own or _file(mount / name)


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
