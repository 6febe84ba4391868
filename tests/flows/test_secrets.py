"""Secrets planted in the environment of a real run appear nowhere: store, local files, output, process list."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from artifacts.store import StoreSettings, open_store
from flows.services.s3 import S3Server

ROOT = Path(__file__).parents[2]
HETRL = Path(sys.executable).parent / "hetrl"
JOB = ROOT / "infra/jobs/qwen3-4b-grpo.yaml"
PAIR = ROOT / "infra/clusters/workstation-pair.yaml"
PLANTED = {
    "PREFECT_API_KEY": "pnu_planted0prefect0key", "PREFECT_API_AUTH_STRING": "planted0user:planted0password", "HF_TOKEN": "hf_planted0hub0token",
    "HUGGING_FACE_HUB_TOKEN": "hf_planted0older0token", "WANDB_API_KEY": "planted0wandb0key", "AWS_SESSION_TOKEN": "",
    "HETRL_UI_PASSWORD": "planted0own0password",
}


@contextmanager
def command_lines() -> Iterator[list[bytes]]:
    """Every command line seen on this machine meanwhile, as any user of it may see them."""
    seen: set[bytes] = set()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    with suppress(OSError):
                        seen.add((entry / "cmdline").read_bytes())

    watcher = threading.Thread(target=look)
    found: list[bytes] = []
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()
        found.extend(seen)


def run(folder: Path, s3: S3Server, *arguments: object) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HETRL_"))}
    env = clean | PLANTED | s3.environment() | {"HETRL_STORE": "s3://planted/store"}
    return subprocess.run([str(HETRL), *map(str, arguments)], cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_secrets_are_in_no_request_artifact_log_report_output_or_process_list(tmp_path: Path, s3_server: S3Server) -> None:
    with command_lines() as lines:
        made = run(tmp_path, s3_server, "run", "--job", JOB, "--cluster", PAIR, "--set", "iterations=2", "--budget", "200", "--json")
        refused = run(tmp_path, s3_server, "run", "--job", JOB, "--cluster", PAIR, "--set", "models.actor=Qwen3-32B", "--set",
                      "response_tokens.max=200000", "--budget", "200")
        told = [run(tmp_path, s3_server, *command) for command in (["status", "--json"], ["report"], ["artifacts", "ls"], ["artifacts", "show", "train"])]
    assert made.returncode == 0, made.stderr
    assert refused.returncode == 3, refused.stderr
    assert all(done.returncode == 0 for done in told), [done.stderr for done in told]

    store = open_store("s3://planted/store", settings=StoreSettings.from_env(s3_server.environment()))
    stored = {info.key: store.backend.get(info.key) or b"" for info in store.backend.objects("")}
    local = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = {f"output of {' '.join(map(str, done.args[1:3]))}": (done.stdout + done.stderr).encode() for done in (made, refused, *told)}
    assert {key.split("/")[1] for key in stored} >= {"job", "profile", "schedule", "deploy", "train", "validate"}
    assert any(name.endswith("request.json") for name in local) and any(name.endswith(".log") for name in local), sorted(local)
    assert any(b"stages.train" in line for line in lines), "the stages themselves were seen"

    secrets = [value.encode() for value in PLANTED.values() if value] + [s3_server.credentials.secret_access_key.encode()]
    everything = {**stored, **local, **said, **{f"process {line[:60]!r}": line for line in lines}}
    leaks = [(where, secret[:8]) for where, data in everything.items() for secret in secrets if secret in data]
    assert leaks == []
