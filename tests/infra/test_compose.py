"""``infra/compose.yaml`` against the published schema, and against what it promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from flows.services.prefect import HEARTBEAT_S, SERVER_SETTINGS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "infra/compose.yaml").read_text()
SCHEMA = json.loads((Path(__file__).parent / "schemas/compose-spec.json").read_text())
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+):-([^}]*)\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """With the defaults of its variables filled in, as the tool does before it looks."""
    document: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(r"\2", TEXT))
    return document


def test_it_is_valid_under_the_published_schema(compose: dict[str, Any]) -> None:
    checker = jsonschema.Draft7Validator(SCHEMA)
    assert [e.message for e in checker.iter_errors(compose)] == []
    wrong = compose | {"services": compose["services"] | {"s3": compose["services"]["s3"] | {"healthchek": {}}}}
    assert list(checker.iter_errors(wrong)), "the schema can fail"


def test_every_variable_has_a_default() -> None:
    said = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    assert not re.findall(r"(?<!\$)\$(?!\$)(?!\{[A-Z0-9_]+:-)", said)


def test_every_service_that_stays_has_a_health_check_and_is_waited_for(compose: dict[str, Any]) -> None:
    staying = {name: s for name, s in compose["services"].items() if s["restart"] != "no"}
    assert set(staying) == {"postgres", "prefect", "s3", "worker"}
    assert all(s["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL") for s in staying.values())
    waits = {(name, on): c["condition"] for name, s in compose["services"].items() for on, c in s.get("depends_on", {}).items()}
    assert waits == {("prefect", "postgres"): "service_healthy", ("deploy", "prefect"): "service_healthy", ("worker", "s3"): "service_healthy",
                     ("worker", "deploy"): "service_completed_successfully"}


def test_ports_are_bound_to_loopback(compose: dict[str, Any]) -> None:
    ports = [port for s in compose["services"].values() for port in s.get("ports", [])]
    assert len(ports) == 2 and all(port.startswith("127.0.0.1:") for port in ports)
    assert {net for s in compose["services"].values() for net in s["networks"]} == {"hetrl"} == set(compose["networks"])


def test_secrets_are_files_and_nothing_else_looks_like_one(compose: dict[str, Any]) -> None:
    assert all(set(s) == {"file"} and s["file"].startswith("./secrets/") for s in compose["secrets"].values())
    used = {secret for s in compose["services"].values() for secret in s.get("secrets", [])}
    assert used == set(compose["secrets"])
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            assert not re.search("PASSWORD|SECRET|TOKEN|AUTH|KEY", key) or str(value).startswith("/run/secrets/"), f"{name}: {key}"
    assert not re.search(r"://[^/\s]*:[^/\s@]*@", TEXT), "no address carries a password"


def test_only_the_worker_has_the_engines_socket_and_nobody_is_privileged(compose: dict[str, Any]) -> None:
    with_socket = [n for n, s in compose["services"].items() if any("docker.sock" in str(v) for v in s.get("volumes", []))]
    assert with_socket == ["worker"]
    for name, service in compose["services"].items():
        assert not service.get("privileged") and not service.get("cap_add")
        if name != "postgres":
            assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]


def test_it_says_what_the_embedded_services_say(compose: dict[str, Any]) -> None:
    server, worker = compose["services"]["prefect"]["environment"], compose["services"]["worker"]["environment"]
    assert SERVER_SETTINGS.items() <= server.items()
    assert worker["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == str(HEARTBEAT_S)
    assert worker["HETRL_DOCKER_NETWORK"] == compose["networks"]["hetrl"]["name"]
    assert worker["HETRL_RUNNER"] == "docker", "no stage's packages are in the flow's image"
    assert compose["services"]["worker"]["hostname"] == "hetrl-worker", "a sweep knows the stages of an earlier container of the worker by it"
    source, _, target = next(v for v in compose["services"]["worker"]["volumes"] if v.startswith(worker["HETRL_HOME"])).partition(":")
    assert source == target == worker["HETRL_HOME"], "stages' folders are bind mounts of the host: one path on both sides"


def test_secrets_are_made_once_and_only_their_owner_finds_them(tmp_path: Path) -> None:
    script = shutil.copy(ROOT / "infra/make-secrets.sh", tmp_path)
    wanted = {s["file"].removeprefix("./secrets/") for s in yaml.safe_load(_VARIABLE.sub(r"\2", TEXT))["secrets"].values()}
    said = subprocess.run(["sh", script], check=True, capture_output=True, text=True).stdout
    folder = tmp_path / "secrets"
    first = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert set(first) == wanted and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(first["postgres_password"]) == 48 and first["prefect_auth"].startswith(b"hetrl:")
    pair = json.loads(first["s3_identities.json"])["identities"][0]["credentials"][0]
    assert all(value.encode() in first["aws_credentials"] for value in pair.values())
    assert not any(value.decode() in said for value in (first["postgres_password"], first["prefect_auth"]))
    subprocess.run(["sh", script], check=True, capture_output=True)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == first


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_the_tool_itself_reads_it(tmp_path: Path) -> None:
    done = subprocess.run(["docker-compose", "-f", str(ROOT / "infra/compose.yaml"), "config", "-q"], cwd=tmp_path, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
