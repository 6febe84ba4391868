"""What a machine of the lab runs: this machine's own Python, packages and HetRL, mounted read-only into an empty image.

So there is nothing to build or to pull, both ends run the same versions, and an edit of the code is there at once.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

from docker.types import Mount

from flows.launch.code import packages_root

WORK = Path(".hetrl/work")
"""Where the stages of a run have their work folders: the engine's workers read model and data there."""

_SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_CONFIGURATION = ("etc/ld.so.cache", "etc/alternatives", "etc/ssl", "etc/ca-certificates")
_EMPTY_DIRECTORIES = ("dev", "etc", "proc", "sys", "tmp", "usr")


def image_archive() -> bytes:
    """The root of the image, as a tar file: folders to mount on, and the names of two users."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in _EMPTY_DIRECTORIES:
            _add(tar, name, type=tarfile.DIRTYPE, mode=0o755)
        for name in _SYSTEM:
            # The engine puts its init process into /sbin, so that is never this machine's.
            if name != "sbin" and (link := Path("/") / name).is_symlink():
                _add(tar, name, type=tarfile.SYMTYPE, linkname=os.readlink(link))
            else:
                _add(tar, name, type=tarfile.DIRTYPE, mode=0o755)
        for name, text in (("etc/passwd", "root:x:0:0:root:/tmp:/bin/sh\n"), ("etc/group", "root:x:0:\n"),
                           ("etc/nsswitch.conf", "hosts: files dns\n")):
            _add(tar, name, content=text.encode(), mode=0o644)
    return out.getvalue()


def mounts(work: Path) -> list[Mount]:
    """This machine's system folders, Python and HetRL, at their own places; ``work`` can be written."""
    root = Path("/")
    folders = {root / "usr", *(root / name for name in _SYSTEM if name != "sbin" and _is_real(root / name)),
               *(root / name for name in _CONFIGURATION if (root / name).exists()),
               *map(Path, (sys.prefix, sys.base_prefix)), packages_root()}
    outermost = [f for f in sorted(folders) if not any(other in f.parents for other in folders)]
    return [*(Mount(str(f), str(f), type="bind", read_only=True) for f in outermost), Mount(str(work), str(work), type="bind")]


def command(module: str, *arguments: str) -> list[str]:
    """``python -m <module>`` as it is called here and in a machine of the lab."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Variables of every process of the lab."""
    return {"PYTHONPATH": str(packages_root()), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0",
            "RAY_raylet_start_wait_time_s": "120"}


def _is_real(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _add(tar: tarfile.TarFile, name: str, *, content: bytes = b"", **fields: object) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in fields.items():
        setattr(member, key, value)
    tar.addfile(member, io.BytesIO(content))
