"""Many runs of a trivial stage through the docker runner: what they leave, and what the runner adds to a container's own time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import docker

from artifacts.invocation import StageRequest
from flows.launch import access, workdir
from flows.launch.docker_runner import DockerRunner
from tests.flows.launch.docker_images import PREFIX, ours


@dataclass(frozen=True)
class Churn:
    """Seconds of each run, and of bare containers of the same image in between; what is there that was not before."""

    run_s: list[float]
    bare_s: list[float]
    left: dict[str, list[str]]


def churn(runner: DockerRunner, engine: docker.DockerClient, request: StageRequest, count: int, *, bare_every: int = 1,
          on_run: Callable[[int], None] = lambda n: None) -> Churn:
    """``count`` runs of the request's stage, each another version. One in ``bare_every`` is followed by a bare container that does the same."""
    before = _what_is_there(engine)
    run_s, bare_s = [], []
    for n in range(count):
        began = time.monotonic()
        runner.run(request.model_copy(update={"version": f"v{n}", "run_id": f"{request.run_id}-{n}"}), on_event=lambda event: None)
        run_s.append(time.monotonic() - began)
        if n % bare_every == 0:
            began = time.monotonic()
            _bare(engine, request)
            bare_s.append(time.monotonic() - began)
        on_run(n)
    after = _what_is_there(engine)
    left = {what: sorted(after[what] - before[what]) for what in after}
    return Churn(run_s, bare_s, left | {"containers of ours": ours(engine)})


def _bare(engine: docker.DockerClient, request: StageRequest) -> None:
    """A container with the same command and folder, started and waited for; nobody follows it."""
    container = engine.containers.create(f"{PREFIX}{request.stage}", entrypoint=["python", "-P", "-m", f"stages.{request.stage}"],
                                         command=["--request", f"{access.WORKDIR}/{workdir.REQUEST}"], init=True, network_mode="none",
                                         volumes={request.workdir: {"bind": access.WORKDIR, "mode": "rw"}}, working_dir=access.WORKDIR)
    try:
        container.start()
        assert container.wait(timeout=300)["StatusCode"] == 0, container.logs()[-500:]
    finally:
        container.remove(force=True, v=True)


def _what_is_there(engine: docker.DockerClient) -> dict[str, set[str]]:
    """Of others of this machine too: what appears and stays is compared by names that only the runner gives."""
    folder = Path(tempfile.gettempdir())
    return {"containers": {c.name for c in engine.containers.list(all=True, ignore_removed=True) if c.name.startswith("hetrl-good-")},
            "networks": {str(n.name) for n in engine.networks.list() if "good" in str(n.name)},
            "volumes": {str(v.name) for v in engine.volumes.list()},
            "temporary files": {p.name for p in folder.iterdir() if p.name.startswith(("hetrl", "tmp"))}}
