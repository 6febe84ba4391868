"""The embedded Prefect server (SQLite, loopback), the work pool with the deployments, and a process worker."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from artifacts.errors import InputError, RunnerUnavailable
from flows.services import daemon
from flows.services.state import home

PORT = 4200
POOL = "hetrl"
HEARTBEAT_S = 60
"""How often a run says that it lives; the automation that gives up silent runs counts on it (``flows.automations``)."""
SERVER, WORKER = "prefect-server", "prefect-worker"

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
}
# Leases kept in the server's memory would end a live run after a restart of the server.
SERVER_SETTINGS = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}


def api_url(port: int = PORT) -> str:
    return f"http://127.0.0.1:{port}/api"


def environment(port: int) -> dict[str, str]:
    ours = {"PREFECT_API_URL": api_url(port), "PREFECT_HOME": str(home() / "prefect"), "PREFECT_WORKER_QUERY_SECONDS": "2",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S)}
    return {**os.environ, **QUIET, **ours}


def healthy(port: int = PORT) -> bool:
    try:
        with urllib.request.urlopen(f"{api_url(port)}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start_server(port: int = PORT) -> daemon.Daemon:
    """Start the server, or return the one of ours that runs."""
    if daemon.find(home(), SERVER) is None and healthy(port):
        raise InputError(f"another Prefect server answers on port {port}",
                         fix="stop it, or choose another port: hetrl up --port 4210")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    return daemon.start(home(), SERVER, command, env=environment(port) | SERVER_SETTINGS, cwd=home(), ready=lambda: healthy(port),
                        wait_s=120)


def deploy(root: Path, port: int = PORT) -> None:
    """Create the work pool and deploy ``prefect.yaml`` of ``root``; doing it again changes nothing."""
    if not (root / "prefect.yaml").is_file():
        raise InputError(f"there is no prefect.yaml in {root}", fix="run this in a checkout of HetRL")
    _prefect(root, port, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    _prefect(root, port, "--no-prompt", "deploy", "--all")


def start_worker(root: Path, env: dict[str, str], port: int = PORT) -> daemon.Daemon:
    """A process worker in ``root``; ``env`` is what its runs need (the store, its credentials)."""
    log = home() / f"{WORKER}.log"
    before = log.stat().st_size if log.exists() else 0
    running = daemon.find(home(), WORKER) is not None

    def ready() -> bool:
        return running or (log.exists() and b"started!" in log.read_bytes()[before:])

    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", "hetrl-embedded"]
    return daemon.start(home(), WORKER, command, env=environment(port) | env, cwd=root, ready=ready, wait_s=120)


def _prefect(root: Path, port: int, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "prefect", *arguments], cwd=root, env=environment(port), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise RunnerUnavailable(f"prefect {' '.join(arguments)} failed: {' '.join(said[-3:])[:500]}", fix="see hetrl status")
