"""The Docker engine: reached, or a clear word on why not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import docker
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, ImageNotFound
from docker.models.images import Image
from requests.exceptions import RequestException

from artifacts.errors import RunnerUnavailable

ENGINE_ERRORS = (DockerException, RequestException)
"""Everything the SDK raises when the engine refuses or does not answer."""

_ANSWER_S = 10
_WORK_S = 60
_TO_START = "type: sudo systemctl start docker (without systemd: containers/engine.sh start)"


def connect() -> docker.DockerClient:
    """A client of the engine that ``DOCKER_HOST`` (or the usual socket) names, checked by a ping.

    Raises ``RunnerUnavailable`` that tells apart: not installed, not running, no permission, a wrong address.
    """
    try:
        client = docker.from_env(timeout=_ANSWER_S)
        client.ping()
        client.api.timeout = _WORK_S
        return client
    except ENGINE_ERRORS as error:
        raise _unavailable(error) from None


def find_image(client: docker.DockerClient, reference: str, *, stage: str) -> Image:
    """A local image; never pulls. Raises ``RunnerUnavailable`` when it is missing."""
    try:
        return client.images.get(reference)
    except ImageNotFound:
        raise RunnerUnavailable(
            f"image {reference} is missing",
            fix=f"type: python containers/build.py {stage} (or docker pull it, with HETRL_IMAGE_PREFIX and HETRL_IMAGE_TAG naming it)",
        ) from None
    except ENGINE_ERRORS as error:
        raise refused(error, f"look up image {reference}") from None


def refused(error: Exception, what: str) -> RunnerUnavailable:
    """An error of the engine while it was asked to do ``what``, with the mend for those people meet."""
    if not isinstance(error, APIError):
        return RunnerUnavailable(f"the Docker engine went away when asked to {what}", fix=_TO_START)
    text = str(error.explanation or error)
    lower = text.lower()
    fix = "the engine's log may say more"
    if "device driver" in lower or "unknown runtime" in lower or "nvidia" in lower:
        fix = "install the NVIDIA container toolkit and restart the engine, or unset HETRL_DOCKER_GPUS"
    elif "bind source path does not exist" in lower:
        fix = "the engine must be on this machine: a stage's folders are mounted from here"
    elif "network" in lower and "not found" in lower:
        fix = "make that network, or set HETRL_DOCKER_NETWORK to one there is"
    elif "no space left" in lower:
        fix = "free disk space: docker system df"
    return RunnerUnavailable(f"the Docker engine refuses to {what}: {text}", fix=fix)


def _unavailable(error: Exception) -> RunnerUnavailable:
    named_by, address = _address()
    host = _shown(address)
    chain = list(_causes(error))
    if any(isinstance(e, PermissionError) for e in chain):
        return RunnerUnavailable(f"no permission for the Docker engine at {host}",
                                 fix='type: sudo usermod -aG docker "$USER", then log in again')
    missing = any(isinstance(e, FileNotFoundError) for e in chain)
    if missing and named_by:
        mend = "unset DOCKER_HOST" if named_by == "DOCKER_HOST" else "docker context use default"
        return RunnerUnavailable(f"{named_by} names {host}, which does not exist", fix=f"correct it, or type: {mend}")
    if missing and not shutil.which("dockerd"):
        return RunnerUnavailable("Docker is not installed", fix="type: sudo apt-get install docker.io (or use --runner process)")
    if missing or any(isinstance(e, ConnectionError) for e in chain):
        return RunnerUnavailable(f"the Docker engine at {host} is not running", fix=_TO_START)
    if isinstance(error, APIError):
        return refused(error, "answer")
    if isinstance(error, RequestException):
        return RunnerUnavailable(f"the Docker engine at {host} does not answer", fix=_TO_START)
    reason = str(error).replace(address, host)
    return RunnerUnavailable(f"the Docker engine cannot be reached: {reason}", fix="check DOCKER_HOST")


def _address() -> tuple[str, str]:
    """What names the engine's address ("" for the default), and the address."""
    if os.environ.get("DOCKER_HOST"):
        return "DOCKER_HOST", os.environ["DOCKER_HOST"]
    with suppress(DockerException, OSError, ValueError, KeyError):
        context = ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT"))
        if context is not None and context.Name != "default" and context.Host:
            return f"the Docker context {context.Name}", str(context.Host)
    return "", "unix:///var/run/docker.sock"


def _shown(address: str) -> str:
    """An address without a user or password in it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, also where a library only kept it as an argument."""
    seen: set[int] = set()
    todo = [error]
    while todo:
        current = todo.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        candidates = [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args]
        todo.extend(c for c in candidates if isinstance(c, BaseException))
