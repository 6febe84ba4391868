"""The ``process`` runner: a stage as a local process, in a session of its own."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from artifacts.errors import InputError, RunnerUnavailable
from artifacts.invocation import StageRequest
from flows.launch import workdir
from flows.launch.base import EXIT_GRACE_S, GRACE_S, Mount, OnEvent, RunResult
from flows.launch.code import code_digest, packages_root
from flows.launch.output import Output
from flows.launch.processes import Group, Mark, end_marked

_POLL_S = 0.2  # also how soon an exception that another thread throws into this one can land
_DRAIN_S = 1.0  # for output still in the pipes once the stage's own process has ended


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
        started = time.monotonic()
        try:
            group = self._start(request, folder)
            try:
                timed_out = self._follow(group, output, started + timeout_s if timeout_s is not None else None)
            except BaseException:
                output.mute()
                self._stop(group, output)
                raise
            finally:
                returncode = group.end()
        finally:
            output.close()
        if timed_out and timeout_s is not None and not (output.outcome and output.outcome.status == "ok"):
            raise output.timeout(timeout_s)
        error = output.failure(returncode)
        if error is not None:
            raise error
        assert output.outcome is not None
        return RunResult(outcome=output.outcome, returncode=returncode, seconds=time.monotonic() - started, tail=output.tail)

    def stop_run(self, run_id: str) -> list[str]:
        return end_marked(lambda mark: mark.run_id == run_id)

    def sweep(self) -> list[str]:
        return end_marked(lambda mark: mark.owner.is_local() and not mark.owner.is_alive())

    def _start(self, request: StageRequest, folder: Path) -> Group:
        # -P: no module of the current folder may shadow ours; the path variable makes a bare checkout work uninstalled.
        command = [self._python, "-P", "-m", f"stages.{request.stage}", "--request", str(folder / workdir.REQUEST)]
        path = os.pathsep.join(p for p in (str(self._root), os.environ.get("PYTHONPATH", "")) if p)
        env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        try:
            return Group(command, cwd=folder, env=env, mark=Mark.new(request.run_id, request.stage))
        except OSError as error:
            raise RunnerUnavailable(f"cannot start {self._python}: {error.strerror}", fix="check the Python installation") from None

    def _follow(self, group: Group, output: Output, deadline: float | None) -> bool:
        """Relay the output until the stage has ended; True when it had to be stopped at its deadline."""
        told = None  # when the outcome was seen
        with _Reader(group) as reader:
            while True:
                reader.read(output, _POLL_S)
                now = time.monotonic()
                if group.leader_ended():
                    reader.drain(output, _DRAIN_S)
                    return False
                if deadline is not None and now >= deadline:
                    self._stop(group, output)
                    return True
                told = told or (now if output.outcome else None)
                if told is not None and now - told > self._exit_grace_s:
                    output.note("warning", f"stage {output.stage} told its outcome but does not exit; it is stopped")
                    self._stop(group, output)
                    return False

    def _stop(self, group: Group, output: Output) -> None:
        """SIGTERM, then up to the grace for the stage to end by itself, its output still taken in."""
        group.ask_to_stop()
        until = time.monotonic() + self._grace_s
        with _Reader(group) as reader:
            while time.monotonic() < until and not group.leader_ended():
                reader.read(output, _POLL_S)
            reader.drain(output, _DRAIN_S)


class _Reader:
    """Reads what is there on the two streams of a stage, never blocking for longer than asked."""

    def __init__(self, group: Group) -> None:
        self._selector = selectors.DefaultSelector()
        for name, descriptor in group.streams.items():
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ, name)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._selector.close()

    def read(self, output: Output, timeout_s: float) -> bool:
        """One round; whether anything came."""
        if not self._selector.get_map():
            time.sleep(min(timeout_s, 0.05))  # both streams are closed, the stage is about to end
            return False
        got = False
        for key, _ in self._selector.select(timeout_s):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fd)
                continue
            got = True
            output.feed(key.data, data)
        return got

    def drain(self, output: Output, limit_s: float) -> None:
        """Take what is still in the pipes. A child that keeps them open and writes on is not waited for."""
        until = time.monotonic() + limit_s
        while self._selector.get_map() and time.monotonic() < until:
            if not self.read(output, 0.0):
                return
