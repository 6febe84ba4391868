"""Compiled code belongs to one state of all the kernel's sources, and a read-only installation works from what it shipped with."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from stages.schedule.cost.kernel import cache


def test_a_change_of_any_source_of_the_kernel_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tmp_path / "cost" / "kernel"
    kernel.mkdir(parents=True)
    for name, text in (("price.py", "a"), ("collectives.py", "b")):
        (kernel / name).write_text(text)
    (tmp_path / "solver.py").write_text("from stages.schedule.cost.kernel.jit import entry")
    (tmp_path / "words.py").write_text("nothing compiled")
    monkeypatch.setattr(cache, "HERE", kernel)
    monkeypatch.setattr(cache, "SCHEDULE", tmp_path)
    seen = [cache.sources_digest()]
    for path in (kernel / "collectives.py", tmp_path / "solver.py"):
        path.write_text(path.read_text() + "\n# changed")
        seen.append(cache.sources_digest())
    assert len(set(seen)) == 3
    (tmp_path / "words.py").write_text("other words")
    assert cache.sources_digest() == seen[-1]


def test_what_cannot_be_written_uses_a_copy_of_what_was_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, shipped, temporary = cache.sources_digest(), tmp_path / "shipped", tmp_path / "tmp"
    (shipped / digest).mkdir(parents=True)
    (shipped / digest / "code.nbc").write_text("compiled")
    temporary.mkdir()
    before = numba.config.CACHE_DIR
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(temporary))
    monkeypatch.setattr(cache.os, "access", lambda path, mode: False)
    monkeypatch.setenv(cache.SHIPPED, str(shipped))
    try:
        numba.config.CACHE_DIR = ""
        cache.settle()
        folder = Path(numba.config.CACHE_DIR)
    finally:
        numba.config.CACHE_DIR = before
    assert folder.parent == temporary and (folder / "code.nbc").read_text() == "compiled"
    assert sorted(p.name for p in temporary.iterdir()) == [folder.name]
