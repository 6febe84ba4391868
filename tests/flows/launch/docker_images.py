"""Names and settings of the docker runner's tests."""

from __future__ import annotations

import docker

from flows.launch.docker_settings import DockerSettings
from flows.launch.owner import Owner

PREFIX = "hetrl-test/"
SETTINGS = DockerSettings(image_prefix=PREFIX, memory="256m", shm_size="32m")


def ours(engine: docker.DockerClient) -> list[str]:
    """Containers that this process launched."""
    managed = engine.containers.list(all=True, filters={"label": "hetrl.managed=1"}, ignore_removed=True)
    return [c.name for c in managed if c.labels.get("hetrl.owner") == Owner.here().to_json()]
