"""The whole pipeline: five real stages, real training, as a person runs it; with local processes and with containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.deployment import Deployment
from artifacts.manifest import VersionRef
from artifacts.plan import Plan
from artifacts.store import Store, StoreSettings, open_store
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from artifacts.validation import Validation
from flows.graph import ORDER
from flows.services.s3 import S3Server

ROOT = Path(__file__).parents[1]
HETRL = Path(sys.executable).parent / "hetrl"
JOB = ROOT / "infra/jobs/tiny-grpo.yaml"


def hetrl(folder: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HETRL_S", "HETRL_HOME"))}
    return subprocess.run([str(HETRL), *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=1200, check=False,
                          env=clean | {"COLUMNS": "160"} | env)


def result(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def check_what_was_made(store: Store, made: dict[str, dict[str, object]], *, iterations: int) -> None:
    assert store.verify(None) == []
    ref = {stage: VersionRef(stage=stage, version=str(made[stage]["version"])) for stage in ORDER}
    plan, deployment = store.read(ref["schedule"], Plan), store.read(ref["deploy"], Deployment)
    planned = {(task, rank): device for task, strategy in plan.tasks.items() for rank, device in enumerate(strategy.ranks)}
    assert {(r.task, r.rank): r.device for r in deployment.ranks} == planned
    log = Throughput.from_jsonl(store.read_bytes(ref["train"], "throughput.jsonl"), where="log")
    assert [i.step for i in log.iterations] == list(range(1, iterations + 1))
    assert log.header.plan == plan.identity()
    for line in log.iterations:
        assert line.loss is not None and line.reward_mean is not None and line.reward_mean > 0
        assert set(plan.tasks) <= set(line.by_task_s)
    validation = store.read(ref["validate"], Validation)
    assert {row.task for row in validation.rows} >= set(plan.tasks)
    report = store.read_bytes(ref["validate"], "report.html").decode()
    assert report.startswith("<!doctype html>") or report.startswith("<!DOCTYPE html>")
    assert all(device in report for device in planned.values())


@pytest.mark.engine
def test_five_stages_as_processes_then_hits_then_a_flipped_byte(tmp_path: Path) -> None:
    options = ("run", "--job", JOB, "--set", "iterations=3", "--json")
    first = result(hetrl(tmp_path, *options))
    assert [s for s in first if s != "dry_run"] == list(ORDER)
    store = open_store((tmp_path / ".hetrl/store").as_uri())
    check_what_was_made(store, first, iterations=3)

    again = result(hetrl(tmp_path, *options))
    topologies = [store.read(VersionRef(stage="profile", version=str(made["profile"]["version"])), Topology) for made in (first, again)]
    unchanged = topologies[0].fingerprint == topologies[1].fingerprint  # unless this machine got much busier
    assert [again[s]["hit"] for s in ORDER] == [False, *[unchanged] * 4], "a live cluster is measured, the rest stands"
    shown = hetrl(tmp_path, "report", "--out", "report.html")
    assert shown.returncode == 0
    assert "3 iterations, reward" in shown.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    alone = result(hetrl(tmp_path, "run", "--only", "validate", "--force", "--json"))
    assert (alone["validate"]["hit"], alone["validate"]["reason"]) == (False, "forced")

    [plan] = (tmp_path / ".hetrl/store/hetrl/schedule").rglob("plan.json")
    data = bytearray(plan.read_bytes())
    data[len(data) // 2] ^= 1
    plan.chmod(0o600)
    plan.write_bytes(bytes(data))
    found = hetrl(tmp_path, "artifacts", "verify")
    assert found.returncode == 6
    assert "plan.json" in found.stdout + found.stderr
    refused = hetrl(tmp_path, "run", "--only", "deploy", "--force")
    assert refused.returncode == 6
    assert "plan.json" in refused.stderr.strip().splitlines()[-1]
    assert "Traceback" not in refused.stderr


@pytest.mark.docker
@pytest.mark.engine
@pytest.mark.timeout(2700)
def test_five_stages_in_containers_on_s3(tmp_path: Path, s3_server: S3Server) -> None:
    if subprocess.run(["docker", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker engine answers")
    built = subprocess.run([sys.executable, "containers/build.py"], cwd=ROOT, capture_output=True, text=True, timeout=2400, check=False)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    environment = s3_server.environment() | {"HETRL_STORE": "s3://end-to-end/store"}
    made = result(hetrl(tmp_path, "run", "--job", JOB, "--set", "iterations=2", "--runner", "docker", "--json", **environment))
    store = open_store("s3://end-to-end/store", settings=StoreSettings.from_env(environment))
    check_what_was_made(store, made, iterations=2)
    for stage in ORDER:
        producer = store.manifest(VersionRef(stage=stage, version=str(made[stage]["version"]))).producer
        assert producer.runner == "docker" and producer.image_digest.startswith("sha256:")
    for stage in ORDER:  # other tests have containers of stages of their own at the same time
        left = subprocess.run(["docker", "ps", "-aq", "--filter", f"label=hetrl.stage={stage}"], capture_output=True, text=True, check=True)
        assert left.stdout == ""
    assert s3_server.credentials.secret_access_key not in "".join(p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file())
