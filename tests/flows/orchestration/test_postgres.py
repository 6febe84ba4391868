"""Prefect's server on a real Postgres, with the settings and behind the password that ``infra/compose.yaml`` gives it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.flows.orchestration.services import ROOT, free_port

PASSWORD, AUTH = "not-a-secret-of-anybody", "hetrl:neither-is-this"
_NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}  # Postgres refuses root


def _tool(name: str) -> str | None:
    beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(beside[-1]) if beside else None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[int]:
    """The port of a server of this module's own."""
    initdb, server = _tool("initdb"), _tool("postgres")
    if not initdb or not server:
        pytest.skip("Postgres is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="hetrl-pg-", dir="/tmp") as name:  # not below pytest's folder, which nobody else may enter
        folder, port = Path(name), free_port()
        (folder / "password").write_text(PASSWORD)
        if _NOBODY:
            for path in (folder, folder / "password"):
                os.chown(path, 65534, 65534)
        subprocess.run([initdb, "-D", folder / "data", "-U", "prefect", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "--no-sync"], check=True,
                       capture_output=True, cwd=folder, **_NOBODY)
        command = [server, "-D", folder / "data", "-p", str(port), "-h", "127.0.0.1", "-k", folder, "-F"]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, **_NOBODY) as running:
            try:
                yield port
            finally:
                running.terminate()


def test_the_server_of_the_compose_file_keeps_its_things_in_postgres(postgres: int, tmp_path: Path) -> None:
    said = yaml.safe_load(re.sub(r"\$\{[A-Z0-9_]+:-([^}]*)\}", r"\1", (ROOT / "infra/compose.yaml").read_text()))["services"]["prefect"]["environment"]
    settings = said | {"PREFECT_SERVER_DATABASE_HOST": "127.0.0.1", "PREFECT_SERVER_DATABASE_PORT": str(postgres), "PREFECT_SERVER_DATABASE_NAME": "postgres",
                       "PREFECT_HOME": str(tmp_path), "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE_PATH": str(tmp_path / "leases"),
                       "PREFECT_SERVER_DATABASE_PASSWORD": PASSWORD, "PREFECT_SERVER_API_AUTH_STRING": AUTH}
    port = free_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **settings}, cwd=tmp_path, stdout=log, stderr=log)
    family = psutil.Process(server.pid)
    try:
        _until_healthy(port, server, tmp_path / "log")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            _ask(port, "/work_pools/filter", {}, auth="")
        made = _ask(port, "/work_pools/", {"name": "hetrl", "type": "process"}, auth=AUTH)
        assert [p["id"] for p in _ask(port, "/work_pools/filter", {}, auth=AUTH)] == [made["id"]]
    finally:
        children = family.children(recursive=True)
        server.terminate()
        server.wait(60)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    assert not list(tmp_path.glob("*.db")), "nothing went into SQLite"
    if psql := _tool("psql"):
        asked = subprocess.run([psql, "-h", "127.0.0.1", "-p", str(postgres), "-U", "prefect", "-d", "postgres", "-Atc", "select name from work_pool"],
                               env={**os.environ, "PGPASSWORD": PASSWORD}, capture_output=True, text=True, check=True)
        assert asked.stdout.split() == ["hetrl"]


def _ask(port: int, path: str, body: dict[str, Any], *, auth: str) -> Any:
    header = {"Authorization": "Basic " + base64.b64encode(auth.encode()).decode()} if auth else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api{path}", data=json.dumps(body).encode(), headers={"content-type": "application/json", **header})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def _until_healthy(port: int, server: subprocess.Popen[bytes], log: Path, within_s: float = 400) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-2000:]
        with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-2000:])
