"""The documentation's commands are typed in a folder with the examples that ship, by a person without settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.docs.terminal import with_examples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current one."""
    where, before = with_examples(tmp_path_factory.mktemp("typed")), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("AWS_", "HETRL_", "RAY_", "PREFECT_"))]:
            patch.delenv(name)
        os.chdir(where)
        yield where
    os.chdir(before)
