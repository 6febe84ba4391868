"""How a stage is launched: as a local process or in a container, with one contract."""

from __future__ import annotations

import os

from artifacts.errors import InputError
from flows.launch.base import Mount, RunResult, StageRunner
from flows.launch.process import ProcessRunner

__all__ = ["Mount", "RunResult", "StageRunner", "chosen_runner", "make_runner"]


def chosen_runner(name: str) -> str:
    """``name``; where it is empty what ``HETRL_RUNNER`` says, as a worker that has only the flow does; else ``process``."""
    return name or os.environ.get("HETRL_RUNNER") or "process"


def make_runner(name: str) -> StageRunner:
    """The runner called ``process`` or ``docker``, checked now.

    Raises ``RunnerUnavailable`` with what is wrong and what to type; never takes another runner instead.
    """
    if name == "process":
        return ProcessRunner()
    if name == "docker":
        from flows.launch.docker_runner import DockerRunner  # the SDK is needed only here

        return DockerRunner()
    raise InputError(f"there is no runner named {name!r}", fix="choose process or docker")
