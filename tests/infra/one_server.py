"""``infra/compose.yaml`` brought up by the commands of ``infra/README.md``, in a copy of ``infra/`` and under names, ports and folders of its own.

What a command says is changed only where two such servers on one machine would get into each other's way, and where there is no registry.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import docker

from flows.graph import ORDER

ROOT = Path(__file__).parents[2]
COMPOSE = "docker-compose"
"""Debian's; the documentation says ``docker compose``, its successor, which takes the same words."""
PREFIX, TAG = "hetrl-test/one-", "t"
BUILT = ("flow", *ORDER)


def documented(section: str) -> list[str]:
    """The shell commands of that section of ``infra/README.md``, in order; continued lines are joined."""
    text = (ROOT / "infra/README.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@dataclass(frozen=True)
class OneServer:
    """``folder`` holds the copy (``checkout``) and what the worker and the stages share (``work``)."""

    folder: Path
    name: str
    prefect_port: int
    s3_port: int
    postgres_image: str

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def copy(self) -> None:
        shutil.copytree(ROOT / "infra", self.checkout / "infra", ignore=shutil.ignore_patterns("secrets"))
        (self.checkout / "containers").symlink_to(ROOT / "containers")

    def environment(self) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HETRL_", "PREFECT_", "COMPOSE_", "DOCKER_GID"))}
        return clean | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_CLI_PROMPT": "false", "DO_NOT_TRACK": "1", "COLUMNS": "200", "HETRL_NETWORK": self.name, "HETRL_PREFECT_PORT": str(self.prefect_port),
            "HETRL_S3_PORT": str(self.s3_port), "HETRL_WORK": str(self.work), "HETRL_IMAGE_PREFIX": PREFIX, "HETRL_IMAGE_TAG": TAG,
            "HETRL_POSTGRES_IMAGE": self.postgres_image}

    def typed(self, command: str) -> str:
        """The command as it is typed for this server."""
        command = command.replace("docker compose -p hetrl ", f"{COMPOSE} -p {self.name} ").replace("/var/lib/hetrl", str(self.work))
        return command.replace(":4200", f":{self.prefect_port}").replace(":8333", f":{self.s3_port}").removeprefix("sudo ")

    def run(self, *commands: str) -> str:
        """Type ``commands`` in the copy, one after the other; what they print. The first that fails ends the test with its words."""
        exports: list[str] = []
        said = ""
        for command in commands:
            done = subprocess.run(["bash", "-c", "\n".join([*exports, self.typed(command)])], cwd=self.checkout, env=self.environment(),
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=900)
            assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            said += done.stdout + done.stderr
            if command.startswith("export "):
                exports.append(self.typed(command))
        return said

    def containers(self, engine: docker.DockerClient) -> dict[str, docker.models.containers.Container]:
        """Service → its container."""
        found = engine.containers.list(all=True, filters={"label": f"com.docker.compose.project={self.name}"}, ignore_removed=True)
        return {c.labels["com.docker.compose.service"]: c for c in found}

    def states(self, engine: docker.DockerClient) -> dict[str, str]:
        """Service → healthy, starting …; of one that has ended: exited (status)."""
        states = {}
        for service, container in self.containers(engine).items():
            state = container.attrs["State"]
            states[service] = f"exited ({state['ExitCode']})" if state["Status"] == "exited" else state.get("Health", {}).get("Status", state["Status"])
        return states

    def until(self, engine: docker.DockerClient, wanted: Mapping[str, str], within_s: float = 600) -> None:
        deadline = time.monotonic() + within_s
        while (states := self.states(engine)) != wanted:
            assert time.monotonic() < deadline, f"{states}\n" + self.logs(engine)
            time.sleep(0.5)

    def logs(self, engine: docker.DockerClient) -> str:
        return "\n".join(f"--- {service}\n" + c.logs(tail=30).decode(errors="replace") for service, c in self.containers(engine).items())

    def stages(self, engine: docker.DockerClient) -> list[str]:
        """Containers of stages that this server's worker has started, running or not."""
        managed = engine.containers.list(all=True, filters={"label": "hetrl.managed=1"}, ignore_removed=True)
        return [c.name for c in managed if f'"host": "{self.name}-worker"' in c.labels.get("hetrl.owner", "")]

    def left(self, engine: docker.DockerClient) -> dict[str, list[str]]:
        """What there still is of this server on the engine; empty lists after ``down -v``."""
        return {"containers": sorted(c.name for c in self.containers(engine).values()), "stages": self.stages(engine),
                "networks": [str(n.name) for n in engine.networks.list(names=[self.name])],
                "volumes": [str(v.name) for v in engine.volumes.list(filters={"label": f"com.docker.compose.project={self.name}"})]}
