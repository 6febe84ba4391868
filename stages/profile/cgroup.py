"""The limits of this process's control group, in both versions of the kernel's interface.

A limit counts wherever it is set: on the group itself, or on one above it (a slice of systemd, a pod of Kubernetes).
"""

from __future__ import annotations

import re
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")


def cpu_quota() -> float | None:
    """Cores' worth of CPU time the group may use; None: no limit, or unknown."""
    two = [text.split() for text in _levels("cpu.max")]
    one = zip(_levels("cpu.cfs_quota_us", controller="cpu"), _levels("cpu.cfs_period_us", controller="cpu"), strict=False)
    limits = [int(quota) / int(period) for quota, period in (*(w for w in two if len(w) == 2), *one)
              if quota.isdigit() and period.isdigit() and int(period)]
    return min(limits, default=None)


def memory_limit() -> int | None:
    """Bytes the group may use; None: no limit, or unknown."""
    texts = [*_levels("memory.max"), *_levels("memory.limit_in_bytes", controller="memory")]
    return min((int(text) for text in texts if text.isdigit()), default=None)


def throttled_count() -> int:
    """How often the kernel has throttled the group, or one above it, for its CPU quota; 0 where it does not say."""
    texts = _levels("cpu.stat") if any("nr_throttled" in text for text in _levels("cpu.stat")) else _levels("cpu.stat", controller="cpu")
    return sum(int(found.group(1)) for text in texts if (found := re.search(r"^nr_throttled (\d+)$", text, re.MULTILINE)))


def cpu_used_s() -> float | None:
    """CPU time of all processes of the group so far, seconds; None where the kernel does not say."""
    found = re.search(r"^usage_usec (\d+)$", _own("cpu.stat"), re.MULTILINE)
    if found:
        return int(found.group(1)) / 1e6
    text = _own("cpuacct.usage", controller="cpuacct") or _own("cpuacct.usage", controller="cpu")
    return int(text) / 1e9 if text.isdigit() else None


def _own(name: str, *, controller: str = "") -> str:
    return next(iter(_levels(name, controller=controller)), "")


def _levels(name: str, *, controller: str = "") -> list[str]:
    """A file of the group and of those above it, nearest first, of version 1's ``controller`` or, without one, of version 2; where it is.

    Inside a container the group itself is often mounted as the root of the hierarchy; its path, one of the host's, is not there then.
    """
    mount = _MOUNT / controller
    found = re.search(rf"^\d+:(?:[^:]+,)?{controller}(?:,[^:]+)?:(.*)$", _file(_SELF), re.MULTILINE)
    own = mount / found.group(1).strip("/") if found else mount
    folders = [own, *own.parents] if own.is_dir() and ".." not in own.parts else [mount]
    texts = (_file(folder / name) for folder in folders if folder == mount or mount in folder.parents)
    return [text for text in texts if text]


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
