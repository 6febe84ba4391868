"""Where compiled code is kept. What cannot be written (a container's read-only root) works from a copy of what it shipped with.

``HETRL_KERNEL_CACHE`` names the folder an image was built with (``NUMBA_CACHE_DIR`` at build time). Compiled code is good for the kind
of processor it was made on; elsewhere it is compiled again, in about 15 s.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numba

CONFIG: Any = numba.config
SHIPPED = "HETRL_KERNEL_CACHE"


def settle() -> None:
    """Give numba a folder it can write, with the shipped code in it."""
    if CONFIG.CACHE_DIR or os.access(Path(__file__).parent, os.W_OK):
        return
    folder = Path(tempfile.gettempdir()) / f"hetrl-kernel-{os.getuid()}"
    shipped = os.environ.get(SHIPPED, "")
    if shipped and Path(shipped).is_dir() and not folder.exists():
        partly = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.copytree(shipped, partly)
        try:
            partly.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(partly, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    CONFIG.CACHE_DIR = str(folder)
