"""Compiled code belongs to one state of all the kernel's sources, and a read-only installation works from what it shipped with."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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


def test_a_part_is_stored_as_code_that_entries_take_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "thing.py"
    source.write_text(
        "from stages.schedule.cost.kernel.jit import entry, inner\n\n@inner\ndef twice(x):\n    return 2 * x\n\n"
        "@entry\ndef whole(x):\n    return twice(x) + 1\n"
    )
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))

    def load() -> ModuleType:
        spec = importlib.util.spec_from_file_location("thing", source)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "thing", module)
        spec.loader.exec_module(module)
        return module

    first = load()
    assert first.whole(3) == 7 and sum(first.twice.stats.cache_misses.values()) == 1
    for index in (tmp_path / "cache").rglob("thing.whole*.nbi"):
        index.unlink()
    again = load()
    assert again.whole(4) == 9 and sum(again.twice.stats.cache_hits.values()) == 1 and not again.twice.stats.cache_misses
    warm = load()
    assert warm.whole(5) == 11 and sum(warm.whole.stats.cache_hits.values()) == 1 and not warm.twice.stats.cache_hits, "needs no part"
