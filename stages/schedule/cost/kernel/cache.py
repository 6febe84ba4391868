"""Where compiled code is kept: a folder for every state of the sources, since numba looks only at the file a function stands in.

An installation that cannot be written (a container's read-only root) works from a copy of what it shipped with: ``HETRL_KERNEL_CACHE``
names the folder that was ``NUMBA_CACHE_DIR`` when the image was built. Compiled code is good for the kind of processor it was made on;
elsewhere it is compiled again, which takes some 30 s.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numba

CONFIG: Any = numba.config
SHIPPED = "HETRL_KERNEL_CACHE"
HERE = Path(__file__).resolve().parent
SCHEDULE = HERE.parents[1]


def sources_digest() -> str:
    """Of the kernel and of every file of the stage that compiles functions which call it."""
    found = hashlib.sha256(numba.__version__.encode())
    for path in sorted(SCHEDULE.rglob("*.py")):
        text = path.read_bytes()
        if path.parent == HERE or b"cost.kernel.jit import" in text:
            found.update(str(path.relative_to(SCHEDULE)).encode() + b"\0" + text)
    return found.hexdigest()[:16]


def settle() -> None:
    """Point numba at this state's folder: where the user says, beside the sources, or in a copy of what was shipped."""
    digest, beside = sources_digest(), HERE / "__pycache__"
    if CONFIG.CACHE_DIR:
        folder = Path(CONFIG.CACHE_DIR) / digest
    elif os.access(beside if beside.exists() else HERE, os.W_OK):
        folder = beside / digest
    else:
        folder = _unpacked(digest)
    CONFIG.CACHE_DIR = str(folder)


def _unpacked(digest: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"hetrl-kernel-{os.getuid()}-{digest}"
    shipped = Path(os.environ.get(SHIPPED) or os.devnull) / digest
    if shipped.is_dir() and not folder.exists():
        partly = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.copytree(shipped, partly)
        try:
            partly.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(partly, ignore_errors=True)
    return folder
