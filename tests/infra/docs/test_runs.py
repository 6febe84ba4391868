"""What the pages say of runs and of the store, typed: on a described cluster, so that the simulator plays what would be trained."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.store import Store, open_store
from flows.graph import ORDER
from tests.infra.docs.terminal import SMALL, typed

DESCRIBED = "--cluster infra/clusters/workstation-pair.yaml --budget 200"


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    """After a run of all five stages."""
    said = typed("hetrl run --job infra/jobs/qwen3-8b-ppo.yaml --cluster infra/clusters/testbed-64.yaml --set iterations=4", f"--budget 200 {SMALL}")
    assert "report:" in said
    return open_store((folder / ".hetrl/store").as_uri())


def test_what_would_run_and_what_runs_again(store: Store) -> None:
    for command, more, hit in (("hetrl run --dry-run", "", False), ("hetrl run --from schedule --dry-run", "--budget 200", True)):
        told = json.loads(typed(command, f"{more} --json").splitlines()[-1])
        assert told["dry_run"] is True and told["schedule"]["hit"] is hit
    before = {stage: store.latest(stage) for stage in ORDER}
    typed("hetrl run --from schedule", "--budget 200")
    assert {stage: store.latest(stage) for stage in ORDER} == before, "nothing has changed"
    for command, made in (("hetrl run --only validate --force", ["validate"]), ("hetrl run --from train --force", ["train", "validate"])):
        told = json.loads(typed(command, "--json").splitlines()[-1])
        assert [stage for stage in ORDER if told.get(stage, {}).get("reason") == "forced"] == made


def test_reading_the_store(store: Store, folder: Path) -> None:
    listed = typed("hetrl artifacts ls")
    assert all(stage in listed for stage in ORDER)
    for command in ("hetrl artifacts show schedule --file plan.json", "hetrl artifacts show schedule --file plan"):
        assert json.loads(typed(command))["groups"]
    assert json.loads(typed("hetrl artifacts show validate --file validation"))["rows"]
    assert "schedule@" in typed("hetrl artifacts lineage validate")
    assert ", 0 faults" in typed("hetrl artifacts verify")
    assert "groups" in json.loads(typed("hetrl artifacts schema plan"))["properties"]
    assert "links" in json.loads(typed("hetrl artifacts schema topology"))["properties"]
    open_store((folder / ".hetrl/store").as_uri()).new_version("train", "half").put_bytes("a.json", b"{}")
    typed("hetrl artifacts sweep --older-than 7d")
    assert (folder / ".hetrl/store/hetrl/train/half/a.json").exists(), "it is not a week old"


@pytest.mark.parametrize("command", ["hetrl artifacts diff schedule@1f3a schedule@c04d", "hetrl artifacts diff schedule@1f3a schedule@77c0 --file plan"])
def test_two_plans_side_by_side(store: Store, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Of versions that are called as on the page."""
    made = store.latest("schedule")
    assert made is not None
    found = {name: store.manifest(made) for name in re.findall(r"@(\w+)", command)}
    for name, manifest in found.items():
        if store.find("schedule", f"{name}00") is None:
            writer = store.new_version("schedule", f"{name}00")
            plan = json.loads(store.read_bytes(made, "plan.json")) | {"reasons": [name]}
            writer.put_bytes("plan.json", json.dumps(plan).encode())
            writer.commit(producer=manifest.producer)
    assert all(name in typed(command) for name in found)


def test_where_to_look(store: Store, folder: Path) -> None:
    assert "predicted" in typed("hetrl report") and (folder / ".hetrl/report.html").is_file()
    typed("hetrl report --out report.html")
    assert (folder / "report.html").read_text().lower().startswith("<!doctype html>")
    assert f"validate@{store.latest('validate').version[:10]}" in typed("hetrl status")  # type: ignore[union-attr]
    assert "✓ store" in typed("hetrl doctor")


@pytest.mark.parametrize("command", ["hetrl run --job infra/jobs/tiny-ppo.yaml", "hetrl run --set batch.prompts=16 --set iterations=20"])
def test_other_jobs_and_fields(folder: Path, command: str) -> None:
    """``hetrl run`` as it stands trains: tests/test_end_to_end.py."""
    told = json.loads(typed(command, f"{DESCRIBED} --pipeline other --json").splitlines()[-1])
    assert [stage for stage in ORDER if stage in told] == list(ORDER)
    if "iterations=20" in command:
        store = open_store((folder / ".hetrl/store").as_uri(), pipeline="other")
        [log] = [store.read_bytes(ref, "throughput.jsonl") for ref in [store.latest("train")] if ref]
        assert len(log.splitlines()) == 21


def test_completion_for_the_shell_it_is_typed_in(folder: Path) -> None:
    home = {**os.environ, "HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    typing = ["bash", "-c", "hetrl --install-completion\nhetrl --show-completion\ntrue"]
    done = subprocess.run(typing, env=home, capture_output=True, text=True, check=True)
    assert "bash completion installed" in done.stdout and "_HETRL_COMPLETE=complete_bash" in done.stdout
    assert (folder / ".bashrc").is_file()
