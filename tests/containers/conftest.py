"""The image builder's modules, which live beside the Dockerfile and not in a package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import docker
import pytest

from artifacts.errors import RunnerUnavailable
from flows.launch.engine import connect

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    sys.path.insert(0, str(ROOT / "containers"))
    import build

    return build


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    try:
        return connect()
    except RunnerUnavailable as error:
        pytest.skip(error.line)
