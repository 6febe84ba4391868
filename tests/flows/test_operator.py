"""What an operator asks: is this machine ready, what runs, and how is a command used."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from artifacts.manifest import Producer
from artifacts.store import open_store
from flows.cli.main import app
from tests.flows.commands import leaves, parses

LEAVES = dict(leaves(typer.main.get_command(app)))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith(("AWS_", "HETRL_", "RAY_"))]:
        monkeypatch.delenv(name)
    yield


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_help_says_what_it_does_and_shows_an_example_that_parses(name: str) -> None:
    command = LEAVES[name]
    text = command.help or ""
    assert len(text.split("\n")[0]) > 20, "a sentence first"
    examples = re.findall(r"^\s*Example: (.+)$", text, re.MULTILINE)
    assert examples, f"hetrl {name} --help shows no example"
    ours = [part.strip() for example in examples for part in example.split("&&") if part.strip().startswith("hetrl ")]
    assert any(part.startswith(f"hetrl {name}") for part in ours)
    for part in ours:
        assert parses(shlex.split(part)[1:]) == ""
    undocumented = [p.name for p in command.params if p.param_type_name == "option" and not p.help]
    assert undocumented == []


def test_what_is_no_command_does_not_parse() -> None:
    assert "No such option: --nope" in parses(["run", "--nope"])
    assert "No such command" in parses(["rum"])
    assert "--out" in parses(["profile"])
    assert "valid integer" in parses(["run", "--seed", "many"])


def test_completion_knows_the_commands() -> None:
    shown = CliRunner().invoke(app, [], prog_name="hetrl", env={"_HETRL_COMPLETE": "complete_bash", "COMP_WORDS": "hetrl sch", "COMP_CWORD": "1"})
    assert shown.stdout.split() == ["schedule"]


def test_status_names_the_holder_of_a_cluster_and_the_latest_versions(tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    now = datetime.now(UTC)
    writer = store.new_version("profile", "abc123")
    writer.put_bytes("topology.json", b"{}")
    store.publish(writer.commit(producer=Producer(hetrl="0", code_digest="", started_at=now, finished_at=now)).ref)
    store.acquire_lease("old", holder="nobody", run_id="r0", ttl_s=60).release()
    with store.acquire_lease("lab", holder="anna@n1", run_id="r1", ttl_s=60):
        shown = CliRunner().invoke(app, ["status", "--json", "--store", store.url])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout.splitlines()[-1])
    assert [(one["cluster"], one["holder"], one["run_id"]) for one in told["leases"]] == [("lab", "anna@n1", "r1")]
    assert told["latest"]["profile"]["version"] == "abc123" and told["s3"]["running"] is False
    assert "lab is held by anna@n1 (run r1) until " in shown.stderr and "profile@abc123" in shown.stderr


def test_doctor_has_a_line_with_a_mend_for_everything_a_run_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")
    shown = CliRunner().invoke(app, ["doctor", "--json"])
    told = json.loads(shown.stdout.splitlines()[-1])
    assert set(told) == {"python", "engine", "memory", "disk", "shm", "kernel", "store", "prefect", "docker", "ray", "gpu"}
    assert told["docker"]["ok"] is None and "does not exist" in told["docker"]["found"]
    assert all(check["mend"] for check in told.values() if check["ok"] is not True)
    assert told["store"]["ok"] is True and "not needed" in told["docker"]["mend"]


@pytest.mark.parametrize(("variables", "check", "says"), [
    ({"HETRL_STORE": "gopher://x"}, "store", "gopher"),
    ({"RAY_ADDRESS": "ray://127.0.0.1:9"}, "ray", "nothing answers at RAY_ADDRESS ray://127.0.0.1:9"),
])
def test_doctor_fails_on_what_is_asked_for_and_not_there(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], check: str, says: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(app, ["doctor", "--json"])
    assert shown.exit_code == 1
    told = json.loads(shown.stdout.splitlines()[-1])[check]
    assert told["ok"] is False and says in told["found"] and told["mend"]


def test_doctor_sees_a_ray_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listener.getsockname()[1]}")
        told = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout.splitlines()[-1])
    assert told["ray"]["ok"] is True


def test_a_gpu_that_is_asked_for_and_not_there_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.cli import doctor

    monkeypatch.setattr(doctor, "_gpu", lambda: (None, "no NVIDIA driver", "not needed on a CPU"))
    shown = CliRunner().invoke(app, ["doctor", "--gpu", "--json"])
    assert shown.exit_code == 1 and json.loads(shown.stdout.splitlines()[-1])["gpu"]["ok"] is False
