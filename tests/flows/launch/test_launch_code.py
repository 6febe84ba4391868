"""What changes a stage's code digest, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.launch.code import code_digest, packages_root, stage_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("artifacts/base.py", "artifacts/catalog/gpus.csv", "stages/contract.py", "stages/cluster/nodes.py",
                 "stages/train/__main__.py", "stages/train/engines/verl.py", "stages/deploy/__main__.py", "flows/hetrl.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path


@pytest.mark.parametrize("changed", ["artifacts/base.py", "artifacts/catalog/gpus.csv", "stages/contract.py", "stages/cluster/nodes.py",
                                     "stages/train/engines/verl.py"])
def test_what_a_stage_consists_of_changes_its_digest(root: Path, changed: str) -> None:
    before = code_digest("train", root)
    (root / changed).write_text("other")
    assert code_digest("train", root) != before


@pytest.mark.parametrize("changed", ["stages/deploy/__main__.py", "flows/hetrl.py", "artifacts/__pycache__/base.cpython-311.pyc",
                                     "stages/train/.notes"])
def test_other_files_do_not(root: Path, changed: str) -> None:
    before = code_digest("train", root)
    (root / changed).parent.mkdir(exist_ok=True)
    (root / changed).write_text("other")
    assert code_digest("train", root) == before


def test_a_renamed_file_is_a_change_and_the_place_of_the_code_is_not(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = code_digest("train", root)
    moved = tmp_path_factory.mktemp("moved") / "here"
    root.rename(moved)
    assert code_digest("train", moved) == before
    (moved / "stages/train/engines/verl.py").rename(moved / "stages/train/engines/torch.py")
    assert code_digest("train", moved) != before


def test_the_root_is_where_the_packages_are() -> None:
    assert (packages_root() / "flows" / "launch" / "code.py").is_file()
    assert any(p.name == "errors.py" for p in stage_files("schedule", packages_root()))


def test_an_unknown_stage(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no stage named 'nope'.*deploy, train"):
        code_digest("nope", root)
