"""How a stage is launched: as a local process or in a container, with one contract."""

from __future__ import annotations

from artifacts.errors import InputError
from flows.launch.base import Mount, RunResult, StageRunner
from flows.launch.process import ProcessRunner

__all__ = ["Mount", "RunResult", "StageRunner", "make_runner"]


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
