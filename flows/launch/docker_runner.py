"""The ``docker`` runner: a stage in a container without privileges, removed whatever happens."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from docker.models.containers import Container
from docker.types import LogConfig, Ulimit

from artifacts.errors import InputError
from artifacts.invocation import StageRequest
from flows.launch import access, workdir
from flows.launch.base import EXIT_GRACE_S, GRACE_S, Mount, OnEvent, RunResult
from flows.launch.code import code_digest
from flows.launch.container import RunningContainer, stop_and_remove
from flows.launch.docker_settings import DockerSettings
from flows.launch.engine import ENGINE_ERRORS, connect, find_image, refused
from flows.launch.follow import follow
from flows.launch.output import Output, blank, secret_values
from flows.launch.owner import Owner

MANAGED, STAGE, RUN_ID, OWNER, CODE = "hetrl.managed", "hetrl.stage", "hetrl.run-id", "hetrl.owner", "hetrl.code-digest"


class DockerRunner:
    """Stages in containers of ``<prefix><stage>:<tag>``, resolved to the image's id; images are never pulled."""

    name = "docker"

    def __init__(self, *, settings: DockerSettings | None = None, grace_s: float = GRACE_S, exit_grace_s: float = EXIT_GRACE_S) -> None:
        self._settings = settings or DockerSettings.from_env()
        self._grace_s = grace_s
        self._exit_grace_s = exit_grace_s
        self._client = connect()
        self._info: dict[str, Any] = self._client.info()

    def code_digest(self, stage: str) -> str:
        """The code in the image, as its builder recorded it; of the code here where it did not."""
        label = find_image(self._client, self._settings.image(stage), stage=stage).labels.get(CODE)
        return label or self._code_here(stage)

    def image_digest(self, stage: str) -> str:
        image_id = find_image(self._client, self._settings.image(stage), stage=stage).id
        return image_id or ""

    def run(self, request: StageRequest, *, on_event: OnEvent, timeout_s: float | None = None,
            extra_mounts: Sequence[Mount] = (), labels: Mapping[str, str] | None = None) -> RunResult:
        """See :class:`flows.launch.base.StageRunner`. The work folder is seen as ``/hetrl/work``, a ``file://`` store at its own path."""
        image = find_image(self._client, request.image_digest or self._settings.image(request.stage), stage=request.stage)
        folder = workdir.prepare(request, seen_as=access.WORKDIR)
        granted = access.grant(request.store, workdir=folder, extra_mounts=extra_mounts, network=self._settings.network,
                               rootless=any("rootless" in option for option in self._info.get("SecurityOptions") or ()))
        output = Output(request.stage, on_event, folder / f"{request.stage}.log", environment=granted.environment)
        try:
            access.hand_over(folder, granted)
            built = image.labels.get(CODE)
            if built and built != self._code_here(request.stage):
                output.note("warning", f"image {self._settings.image(request.stage)} holds other code than this checkout; "
                                       f"to rebuild it, type: python containers/build.py {request.stage}")
            container = self._create(request, str(image.id), granted, labels or {})
        except BaseException:
            output.close()
            raise
        try:
            running = RunningContainer(container, memory=self._settings.memory)
        except BaseException as error:
            output.close()
            with suppress(*ENGINE_ERRORS):
                container.remove(force=True)
            if isinstance(error, ENGINE_ERRORS):
                raise refused(error, f"start stage {request.stage}") from None
            raise
        return follow(running, output, timeout_s=timeout_s, grace_s=self._grace_s, exit_grace_s=self._exit_grace_s)

    def stop_run(self, run_id: str) -> list[str]:
        return [stop_and_remove(c) for c in self._managed(f"{RUN_ID}={run_id}")]

    def sweep(self) -> list[str]:
        """Containers of other machines, of other owners that live, and of nobody known are left alone."""
        ended = []
        for container in self._managed():
            owner = Owner.parse(container.labels.get(OWNER, ""))
            if owner is not None and owner.is_local() and not owner.is_alive():
                ended.append(stop_and_remove(container))
        return ended

    def _managed(self, *labels: str) -> list[Container]:
        try:
            found: list[Container] = self._client.containers.list(
                all=True, filters={"label": [f"{MANAGED}=1", *labels]}, ignore_removed=True)
            return found
        except ENGINE_ERRORS as error:
            raise refused(error, "list its containers") from None

    def _code_here(self, stage: str) -> str:
        try:
            return code_digest(stage)
        except FileNotFoundError as error:
            raise InputError(str(error)) from None

    def _create(self, request: StageRequest, image_id: str, granted: access.Access, labels: Mapping[str, str]) -> Container:
        settings = self._settings
        secrets = secret_values(granted.environment)
        all_labels = {**labels, MANAGED: "1", STAGE: request.stage, RUN_ID: request.run_id, OWNER: Owner.here().to_json()}
        cores = float(self._info.get("NCPU") or 1)
        try:
            return self._client.containers.create(
                image_id,
                entrypoint=["python", "-P", "-m", f"stages.{request.stage}"],
                command=["--request", f"{access.WORKDIR}/{workdir.REQUEST}"],
                name=f"hetrl-{request.stage}-{uuid.uuid4().hex[:12]}",
                labels={name: blank(value, secrets) for name, value in all_labels.items()},
                environment=granted.environment,
                user=f"{granted.uid}:{granted.gid}",
                working_dir=access.WORKDIR,
                mounts=granted.mounts,
                network=granted.network,
                hostname=None if granted.network == "host" else _hostname(),
                init=True,
                read_only=True,
                tmpfs={"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={settings.tmp_size}"},  # exec: torch compiles kernels there
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                pids_limit=settings.pids_limit,
                mem_limit=settings.memory,
                memswap_limit=settings.memory,
                nano_cpus=round(min(settings.cpus, cores) * 1e9) if settings.cpus else None,
                shm_size=settings.shm_size,
                ulimits=[Ulimit(name="core", soft=0, hard=0)],
                device_requests=settings.device_requests(),
                log_config=LogConfig(type="json-file", config={"max-size": "50m", "max-file": "2"}),
            )
        except ENGINE_ERRORS as error:
            raise refused(error, f"make the container of stage {request.stage}") from None


def _hostname() -> str | None:
    """This machine's name, so that a stage calls the machine the same in a container and out of it."""
    name = socket.gethostname()
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}", name) else None
