"""A real Prefect server with a real worker, started by the functions ``hetrl up`` uses, and how tests talk to it."""

from __future__ import annotations

import base64
import json
import random
import socket
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from flows.services import prefect
from flows.services.s3 import S3Server
from flows.services.state import home

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Server:
    """A Prefect server on loopback. ``auth``: user:password, where it asks for them."""

    port: int
    auth: str = field(default="", repr=False)

    def api(self, path: str, body: dict[str, Any] | None = None, *, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        if self.auth:
            headers["authorization"] = "Basic " + base64.b64encode(self.auth.encode()).decode()
        request = urllib.request.Request(f"{prefect.api_url(self.port)}{path}", data=data, headers=headers, method=method)
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

    def started_by(self, automation: str, *, after: datetime, within_s: float = 300) -> dict[str, Any]:
        """The first run that automation started after a point in time."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            found = self.api("/flow_runs/filter", {"sort": "START_TIME_ASC"})
            for run in sorted(found, key=lambda r: str(r["created"])):
                made_by = run.get("created_by") or {}
                if made_by.get("type") == "AUTOMATION" and made_by.get("display_value") == automation and datetime.fromisoformat(
                        run["created"].replace("Z", "+00:00")) > after:
                    return dict(run)
            time.sleep(0.5)
        raise AssertionError(f"automation {automation!r} started no run")

    def paused(self, run: str, within_s: float = 300) -> dict[str, Any]:
        """Its state, once it waits for an answer."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            state = self.api(f"/flow_runs/{run}")["state"]
            if state["type"] == "PAUSED":
                return dict(state)
            assert state["type"] not in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"), state
            time.sleep(0.5)
        raise AssertionError(f"run {run} did not pause: {state}")

    def answer(self, run: str, within_s: float = 300, **form: str) -> None:
        """Resume it with the form filled in. It is paused a moment before its form is there: asked again until it is taken."""
        deadline = time.monotonic() + within_s
        while (said := self.api(f"/flow_runs/{run}/resume", {"run_input": form}))["status"] != "ACCEPT":
            assert time.monotonic() < deadline, said
            time.sleep(0.5)

    def shown(self, run: str, key: str) -> str:
        """What an artifact of that run shows."""
        found = self.api("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}, "key": {"any_": [key]}}})
        return str(found[0]["data"])

    def tasks(self, run: str) -> dict[str, str]:
        """Stage → state name."""
        found = self.api("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {t["name"]: t["state_name"] for t in found}


@dataclass(frozen=True, kw_only=True)
class Services(Server):
    """With the embedded S3 server its worker's runs write to."""

    s3: S3Server


def free_port() -> int:
    """Below the ports the kernel hands out by itself: nobody gets it by chance while the server is still starting."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for_stage(name: str, within_s: float = 300) -> psutil.Process:
    """The process of a stage that runs for these services: ``stages.profile``. Other tests may run stages at the same time."""
    here = str(home().absolute())
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for process in psutil.process_iter():
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if name in line and process.parent() is not None and "--request" in line and line[-1].startswith(here):
                return process
        time.sleep(0.1)
    raise AssertionError(f"{name} did not start")
