"""What the pages say of working on HetRL itself, typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented import ROOT
from tests.infra.docs.terminal import DOCUMENTED, typed


def test_the_environment(tmp_path: Path) -> None:
    """``hetrl`` is there once it is active. The environment is the one these tests run in."""
    command = ". .venv/bin/activate"
    assert command in DOCUMENTED
    (tmp_path / ".venv").symlink_to(sys.prefix)
    done = subprocess.run(["bash", "-c", f"{command} && command -v hetrl && python -c 'import sys; print(sys.prefix)'"], cwd=tmp_path, text=True,
                          env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True)
    hetrl, prefix = done.stdout.split()
    assert Path(hetrl).samefile(Path(sys.prefix) / "bin/hetrl") and Path(prefix).samefile(sys.prefix)


def test_extending(monkeypatch: pytest.MonkeyPatch) -> None:
    """infra/docs/extending.md: the tests of what is most often added."""
    monkeypatch.chdir(ROOT)
    said = typed("python -m pytest tests/artifacts/test_catalog_gpus.py tests/artifacts/test_model_spec.py tests/test_layers.py", "-p no:cacheprovider")
    assert " passed" in said and " failed" not in said
