"""The image, names and settings of the docker runner's tests."""

from __future__ import annotations

import importlib.util
import io
import tarfile
from pathlib import Path

import docker

from flows.launch.docker_settings import DockerSettings
from flows.launch.owner import Owner
from tests.flows.launch.tiny_stages import STAGES

PREFIX = "hetrl-test/"
SETTINGS = DockerSettings(image_prefix=PREFIX, memory="256m", shm_size="32m")


def ours(engine: docker.DockerClient) -> list[str]:
    """Containers that this process launched."""
    managed = engine.containers.list(all=True, filters={"label": "hetrl.managed=1"}, ignore_removed=True)
    return [c.name for c in managed if c.labels.get("hetrl.owner") == Owner.here().to_json()]


def build_image(engine: docker.DockerClient, stage_root: Path) -> str:
    """One image under the name of every tiny stage; its id."""
    path = Path(__file__).parents[3] / "containers" / "base_from_host.py"
    spec = importlib.util.spec_from_file_location("base_from_host", path)
    assert spec and spec.loader
    base = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(base)
    recipe = f"FROM {base.ensure(base.TAG)}\nENV PYTHONPATH=/app\nCOPY stages /app/stages\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(stage_root / "stages", "stages")
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(recipe)
        tar.addfile(member, io.BytesIO(recipe))
    context.seek(0)
    image, _ = engine.images.build(fileobj=context, custom_context=True, rm=True, forcerm=True, network_mode="none")
    for stage in STAGES:
        image.tag(f"{PREFIX}{stage}", "latest")
    return str(image.id)
