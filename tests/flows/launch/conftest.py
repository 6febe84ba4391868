"""Fixtures of the launch tests: a checkout of tiny stages, requests for them, and their events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from artifacts.invocation import StageRequest
from tests.flows.launch.tiny_stages import Events, write_stages


@pytest.fixture(scope="session")
def stage_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stages(tmp_path_factory.mktemp("code"))


@pytest.fixture
def make_request(tmp_path: Path) -> Callable[..., StageRequest]:
    def make(stage: str, **fields: Any) -> StageRequest:
        defaults = {"store": f"file://{tmp_path}/store", "pipeline": "p", "version": "v1", "run_id": "run-1",
                    "workdir": str(tmp_path / "work")}
        return StageRequest(stage=stage, **{**defaults, **fields})
    return make


@pytest.fixture
def events() -> Events:
    return Events()
