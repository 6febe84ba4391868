"""The digest of a stage's code: part of what names a version, so that changed code runs again and unchanged code does not.

Standard library only and no import of the stages: the image builder loads this file by itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

_LEFT_OUT = {"__pycache__", ".ruff_cache", ".mypy_cache", ".pytest_cache"}


def packages_root() -> Path:
    """The folder that holds ``artifacts``, ``stages`` and ``flows``: a checkout or site-packages."""
    spec = importlib.util.find_spec("artifacts")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package 'artifacts' is not importable")
    return Path(next(iter(spec.submodule_search_locations))).resolve().parent


def stage_files(stage: str, root: Path) -> list[Path]:
    """The files that decide what ``stage`` does, sorted by their path below ``root``.

    Those are the stage's own package, what stages share (``stages/*.py``, ``stages/cluster``) and the artifacts with
    their catalogue. Raises ``FileNotFoundError`` when there is no such stage.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", stage) or not (root / "stages" / stage).is_dir():
        known = sorted(p.parent.name for p in (root / "stages").glob("*/__main__.py"))
        raise FileNotFoundError(f"no stage named {stage[:80]!r} in {root / 'stages'}; there are: {', '.join(known) or 'none'}")
    found = set((root / "stages").glob("*.py"))
    for folder in (root / "stages" / stage, root / "stages" / "cluster", root / "artifacts"):
        found.update(_below(folder))
    return sorted(found, key=lambda p: p.relative_to(root).as_posix())


def code_digest(stage: str, root: Path | None = None) -> str:
    """sha256 (hex) over the relative path and the content of each of :func:`stage_files`."""
    base = root or packages_root()
    total = hashlib.sha256()
    for path in stage_files(stage, base):
        name = path.relative_to(base).as_posix()
        total.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part in _LEFT_OUT or part.startswith(".") for part in relative.parts)
        if not hidden and path.suffix not in (".pyc", ".pyo") and path.is_file():
            yield path
