"""The flow on a real Prefect server with a real worker, started by the functions ``hetrl up`` uses, on the embedded S3 server."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from artifacts.store import open_store
from artifacts.store.settings import StoreSettings
from flows.services import daemon, prefect
from flows.services.s3 import S3Server
from flows.services.state import home, store_url

ROOT = Path(__file__).parents[2]
JOB = str(ROOT / "infra/jobs/qwen3-4b-grpo.yaml")
PAIR = str(ROOT / "infra/clusters/workstation-pair.yaml")


@dataclass(frozen=True)
class Services:
    port: int
    s3: S3Server

    def api(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{prefect.api_url(self.port)}{path}", data=data, headers={"content-type": "application/json"})
        for _ in range(30):
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code != 503:  # a database that is busy: Prefect's own client asks again, too
                    raise AssertionError(f"{path}: {error.code} {error.read()[:300]!r}") from None
                time.sleep(1)
        raise AssertionError(f"{path}: 503 thirty times")

    def start(self, deployment: str, **parameters: object) -> str:
        """Create a run; its id."""
        [found] = self.api("/deployments/filter", {"deployments": {"name": {"any_": [deployment]}}})
        made = self.api(f"/deployments/{found['id']}/create_flow_run", {"parameters": found["parameters"] | parameters, "state": {"type": "SCHEDULED"}})
        return str(made["id"])

    def finish(self, run: str, within_s: float = 500) -> dict[str, Any]:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            state = self.api(f"/flow_runs/{run}")["state"]
            if state["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
                return dict(state)
            time.sleep(0.5)
        raise AssertionError(f"run {run} did not end: {state}")

    def tasks(self, run: str) -> dict[str, str]:
        """Stage → state name."""
        found = self.api("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {t["name"]: t["state_name"] for t in found}


def _free_port() -> int:
    """Below the ports the kernel hands out by itself: nobody gets it by chance while the server is still starting."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Services]:
    port = _free_port()
    before = os.environ.get("HETRL_HOME")
    os.environ["HETRL_HOME"] = str(tmp_path_factory.mktemp("home"))
    try:
        prefect.start_server(port)
        prefect.deploy(ROOT, port)
        prefect.start_worker(ROOT, {**s3_server.environment(), "HETRL_STORE": store_url()}, port)
        yield Services(port, s3_server)
    finally:
        for name in (prefect.WORKER, prefect.SERVER):
            running = daemon.find(home(), name)
            if running:
                running.stop()
        os.environ.pop("HETRL_HOME")
        if before is not None:
            os.environ["HETRL_HOME"] = before


def test_deployments_are_those_of_the_file_and_deploying_again_adds_none(services: Services) -> None:
    wanted = {d["name"] for d in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]}
    assert {d["name"] for d in services.api("/deployments/filter", {})} == wanted
    before = services.api("/automations/count", {})
    prefect.deploy(ROOT, services.port)
    assert {d["name"] for d in services.api("/deployments/filter", {})} == wanted
    assert services.api("/automations/count", {}) == before == 1


def test_the_form_has_a_typed_field_for_every_parameter(services: Services) -> None:
    [train] = services.api("/deployments/filter", {"deployments": {"name": {"any_": ["train"]}}})
    fields = train["parameter_openapi_schema"]["properties"]
    assert set(fields) == {"job", "cluster", "from_stage", "until_stage", "only", "force", "dry_run", "runner", "engine", "store"}
    assert fields["runner"]["enum"] == ["process", "docker"]
    assert all(field.get("description") for field in fields.values())


def test_a_run_makes_versions_in_s3_and_the_next_one_is_cached(services: Services) -> None:
    options = {"job": JOB, "cluster": PAIR, "until_stage": "schedule"}
    first = services.start("train", **options)
    assert services.finish(first)["type"] == "COMPLETED", services.finish(first)
    assert services.tasks(first) == {"profile": "Completed", "schedule": "Completed"}
    store = open_store(store_url(), settings=StoreSettings.from_env(services.s3.environment()))
    plans = store.versions("schedule")
    assert len(plans) == 1
    second = services.start("train", **options)
    assert services.finish(second)["type"] == "COMPLETED"
    assert services.tasks(second) == {"profile": "Cached", "schedule": "Cached"}
    assert store.versions("schedule") == plans
    keys = {a["key"] for a in services.api("/artifacts/filter", {})}
    assert {"hetrl-plan", "hetrl-plan-report"} <= keys


def test_bad_input_fails_the_run_with_one_line(services: Services) -> None:
    state = services.finish(services.start("train", job="nowhere.yaml", cluster=PAIR))
    assert state["type"] == "FAILED"
    assert state["message"].startswith("InputError: cannot read nowhere.yaml")
    assert "Traceback" not in state["message"]


def test_a_cancelled_run_leaves_no_stage_behind(services: Services) -> None:
    run = services.start("train", cluster="local", until_stage="profile", force=True)
    stage = _wait_for_stage("stages.profile")
    command = [sys.executable, "-m", "prefect", "flow-run", "cancel", run]
    subprocess.run(command, env=prefect.environment(services.port), cwd=ROOT, check=True, capture_output=True, timeout=300)
    assert services.finish(run)["type"] == "CANCELLED"
    assert _gone(stage)


def test_a_killed_flow_leaves_no_stage_behind(services: Services) -> None:
    run = services.start("train", cluster="local", until_stage="profile", force=True)
    stage = _wait_for_stage("stages.profile")
    flow = stage.parent()
    assert flow is not None
    flow.send_signal(signal.SIGKILL)
    assert services.finish(run)["type"] == "CRASHED"
    assert _gone(stage)


def _wait_for_stage(name: str, within_s: float = 300) -> psutil.Process:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if name in line and process.parent() is not None and "--request" in line:
                return process
        time.sleep(0.1)
    raise AssertionError(f"{name} did not start")


def _gone(process: psutil.Process, within_s: float = 120) -> bool:
    deadline = time.monotonic() + within_s
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
