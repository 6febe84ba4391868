"""How stage containers are run: ``HETRL_DOCKER_*`` and ``HETRL_IMAGE_*``, read and checked once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from docker.types import DeviceRequest

from artifacts.errors import InputError


@dataclass(frozen=True)
class DockerSettings:
    image_prefix: str = "hetrl/"
    image_tag: str = "latest"
    network: str | None = None
    """None: ``host`` when the store is at a loopback address, which a container could not reach otherwise, else ``bridge``."""
    gpus: str = ""
    """As in ``docker run --gpus``: "all", a number, or ``device=0,2`` (indices or UUIDs)."""
    memory: str | None = None
    cpus: float | None = None
    shm_size: str = "4g"
    """/dev/shm, where Ray keeps its objects and data loaders their batches; only what is used costs memory."""
    tmp_size: str = "4g"
    pids_limit: int = 8192
    """Ray and torch start several threads for every core."""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> DockerSettings:
        """Raises ``InputError`` naming the variable that cannot be used."""
        env = os.environ if env is None else env
        settings = cls(
            image_prefix=env.get("HETRL_IMAGE_PREFIX", cls.image_prefix),
            image_tag=env.get("HETRL_IMAGE_TAG") or cls.image_tag,
            network=env.get("HETRL_DOCKER_NETWORK") or None,
            gpus=env.get("HETRL_DOCKER_GPUS", "").strip(),
            memory=_size(env, "HETRL_DOCKER_MEMORY", None),
            cpus=_cpus(env),
            shm_size=_size(env, "HETRL_DOCKER_SHM", cls.shm_size) or cls.shm_size,
            tmp_size=_size(env, "HETRL_DOCKER_TMP", cls.tmp_size) or cls.tmp_size,
            pids_limit=_count(env, "HETRL_DOCKER_PIDS", cls.pids_limit),
        )
        settings.device_requests()
        return settings

    def image(self, stage: str) -> str:
        return f"{self.image_prefix}{stage}:{self.image_tag}"

    def device_requests(self) -> list[DeviceRequest]:
        if not self.gpus:
            return []
        if self.gpus == "all":
            return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
        if re.fullmatch(r"[1-9][0-9]{0,3}", self.gpus):
            return [DeviceRequest(count=int(self.gpus), capabilities=[["gpu"]])]
        if re.fullmatch(r"device=[A-Za-z0-9:/-]+(,[A-Za-z0-9:/-]+)*", self.gpus):
            return [DeviceRequest(device_ids=self.gpus.removeprefix("device=").split(","), capabilities=[["gpu"]])]
        raise InputError(f"HETRL_DOCKER_GPUS={self.gpus[:60]!r} cannot be used", fix="write all, a number, or device=0,2")


def _size(env: Mapping[str, str], name: str, default: str | None) -> str | None:
    text = env.get(name, "").strip().lower()
    if text and not re.fullmatch(r"[1-9][0-9]*[bkmg]?", text):
        raise InputError(f"{name}={text[:20]!r} is not a size", fix="write it like 512m or 8g")
    return text or default


def _cpus(env: Mapping[str, str]) -> float | None:
    text = env.get("HETRL_DOCKER_CPUS", "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or float(text) < 0.01:
        raise InputError(f"HETRL_DOCKER_CPUS={text[:20]!r} is not a number of cores", fix="write it like 1.5")
    return float(text)


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "").strip()
    if text and not re.fullmatch(r"[1-9][0-9]{0,6}", text):
        raise InputError(f"{name}={text[:20]!r} is not a number", fix=f"write it like {default}")
    return int(text) if text else default
