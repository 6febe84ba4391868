"""The control group above the lab's machines, in trees of files as the two versions of the kernel's interface show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.lab import weight
from flows.lab.weight import LabGroup


@pytest.mark.parametrize(("driver", "folder", "file", "usual", "parent"), [
    ("cgroupfs", "hetrllab1a2b", "cpu.weight", "100", "/hetrllab1a2b"),
    ("systemd", "hetrllab1a2b.slice", "cpu.weight", "100", "hetrllab1a2b.slice"),
    ("cgroupfs", "cpu/hetrllab1a2b", "cpu.shares", "1024", "/hetrllab1a2b"),
])
def test_it_goes_before_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, folder: str, file: str, usual: str,
                                        parent: str) -> None:
    monkeypatch.setattr(weight, "_MOUNT", tmp_path)
    other = tmp_path / "somebody" / file
    for path in (tmp_path / folder / file, other):
        path.parent.mkdir(parents=True)
        path.write_text(usual)
    group = LabGroup("1a2b", driver=driver)
    assert group.parent == parent, "what the engine is told"
    group.put_first()
    assert int((tmp_path / folder / file).read_text()) >= 100 * int(usual) and other.read_text() == usual


def test_it_goes_with_the_groups_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight, "_MOUNT", tmp_path)
    (tmp_path / "cpu" / "hetrllab1a2b" / "container").mkdir(parents=True)
    (tmp_path / "hetrllab1a2b").mkdir()
    group = LabGroup("1a2b", driver="cgroupfs")
    assert group.remove() and not group.remove()
    assert not (tmp_path / "cpu" / "hetrllab1a2b").exists() and (tmp_path / "cpu").exists()
