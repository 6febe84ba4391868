"""The ``process`` runner: a stage as a local process, in a session of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from artifacts.errors import InputError, RunnerUnavailable
from artifacts.invocation import StageRequest
from flows.launch import workdir
from flows.launch.base import EXIT_GRACE_S, GRACE_S, Mount, OnEvent, RunResult
from flows.launch.code import code_digest, packages_root
from flows.launch.follow import follow
from flows.launch.output import Output
from flows.launch.processes import Group, Mark, end_marked


class ProcessRunner:
    """``python -m stages.<stage> --request <workdir>/request.json`` with this Python and this environment."""

    name = "process"

    def __init__(self, *, root: Path | None = None, python: str = sys.executable, grace_s: float = GRACE_S,
                 exit_grace_s: float = EXIT_GRACE_S) -> None:
        self._root = root or packages_root()
        self._python = python
        self._grace_s = grace_s
        self._exit_grace_s = exit_grace_s
        if not (self._root / "stages").is_dir():
            raise RunnerUnavailable(f"the package 'stages' is not in {self._root}", fix="install hetrl, or run from its checkout")

    def code_digest(self, stage: str) -> str:
        try:
            return code_digest(stage, self._root)
        except FileNotFoundError as error:
            raise InputError(str(error)) from None

    def image_digest(self, stage: str) -> str:
        return ""

    def run(self, request: StageRequest, *, on_event: OnEvent, timeout_s: float | None = None,
            extra_mounts: Sequence[Mount] = (), labels: Mapping[str, str] | None = None) -> RunResult:
        """See :class:`flows.launch.base.StageRunner`. The stage's current folder is its work folder; ``labels`` are not used."""
        for mount in extra_mounts:
            if str(mount.source) != mount.target:
                raise InputError(f"a local process cannot see {mount.source} as {mount.target}",
                                 fix="mount it at its own path, or use the docker runner")
        folder = workdir.prepare(request)
        output = Output(request.stage, on_event, folder / f"{request.stage}.log")
        try:
            group = self._start(request, folder)
        except BaseException:  # a signal can come when the process is there and nobody holds it yet
            output.close()
            end_marked(lambda mark: (mark.run_id, mark.stage) == (request.run_id, request.stage))
            raise
        return follow(group, output, timeout_s=timeout_s, grace_s=self._grace_s, exit_grace_s=self._exit_grace_s)

    def stop_run(self, run_id: str) -> list[str]:
        return end_marked(lambda mark: mark.run_id == run_id)

    def sweep(self) -> list[str]:
        return end_marked(lambda mark: mark.owner.is_local() and not mark.owner.is_alive())

    def _start(self, request: StageRequest, folder: Path) -> Group:
        # -P: no module of the current folder may shadow ours; the path variable makes a bare checkout work uninstalled.
        command = [self._python, "-P", "-m", f"stages.{request.stage}", "--request", str(folder / workdir.REQUEST)]
        path = os.pathsep.join(p for p in (str(self._root), os.environ.get("PYTHONPATH", "")) if p)
        env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "HETRL_STAGE_LAUNCHER": str(os.getpid())}
        try:
            return Group(command, cwd=folder, env=env, mark=Mark.new(request.run_id, request.stage))
        except OSError as error:
            raise RunnerUnavailable(f"cannot start {self._python}: {error.strerror}", fix="check the Python installation") from None
