"""The control group above the lab's containers, which goes before the rest of this machine: a quota is only one where it can be had.

What other programs of this machine do would otherwise count as slowness of the lab's machines.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_MOST = {"cpu.weight": "10000", "cpu.shares": "262144"}
"""By the file of version 2 and of version 1: the kernel's largest."""


class LabGroup:
    """``driver``: the engine's (``cgroupfs`` or ``systemd``); ``parent`` is what it is told."""

    def __init__(self, identity: str, *, driver: str) -> None:
        self.name = f"hetrllab{identity}" + (".slice" if driver == "systemd" else "")
        self.parent = self.name if driver == "systemd" else f"/{self.name}"

    def put_first(self) -> None:
        """Once containers are in it. Where the group cannot be written the lab has the usual weight."""
        for folder in self._folders():
            for file, most in _MOST.items():
                if (folder / file).exists():
                    with suppress(OSError):
                        (folder / file).write_text(most)

    def remove(self) -> bool:
        """Whether there was anything of it."""
        folders = self._folders()
        for folder in folders:
            for inner in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
                with suppress(OSError):
                    inner.rmdir()
            with suppress(OSError):
                folder.rmdir()
        return bool(folders)

    def _folders(self) -> list[Path]:
        return [folder for folder in (_MOUNT / self.name, *_MOUNT.glob(f"*/{self.name}")) if folder.is_dir()]
