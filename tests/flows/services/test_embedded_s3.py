"""The embedded S3 server: started once, found again, keeps its data, shows no secret."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import psutil
import pytest

from artifacts.errors import InputError, RunnerUnavailable
from artifacts.store import StoreSettings, open_store
from flows.services import s3
from flows.services.s3 import S3Credentials, S3Server, running_s3, start_s3


def put(server: S3Server, key: str) -> None:
    store = open_store("s3://embedded/x", settings=StoreSettings.from_env(server.environment()))
    assert store.backend.put_if_absent(key, b"kept")


def get(server: S3Server, key: str) -> bytes | None:
    return open_store("s3://embedded/x", settings=StoreSettings.from_env(server.environment())).backend.get(key)


def test_start_find_stop_and_start_again_with_the_data(tmp_path: Path) -> None:
    assert running_s3(tmp_path / "s3") is None
    first = start_s3(tmp_path / "s3", detached=False)
    try:
        put(first, "a")
        assert start_s3(tmp_path / "s3") == first == running_s3(tmp_path / "s3")
        with pytest.raises(InputError, match="already runs at"):
            start_s3(tmp_path / "s3", port=1)
        with pytest.raises(HTTPError, match="403"):
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(first.endpoint + "/embedded/x/a", timeout=60)
        addresses = {one.laddr.ip for one in psutil.Process(first.pid).net_connections("inet") if one.status == psutil.CONN_LISTEN}
        assert addresses == {"127.0.0.1"}
        os.kill(first.pid, signal.SIGKILL)
        while first.alive():
            time.sleep(0.01)
        assert running_s3(tmp_path / "s3") is None and first.stop() is False
        second = start_s3(tmp_path / "s3", detached=False)
        assert (second.credentials, second.pid != first.pid) == (first.credentials, True)
        assert get(second, "a") == b"kept"
        put(second, "b")
        assert second.stop() is True and not second.alive()
        third = start_s3(tmp_path / "s3", detached=False)
        assert get(third, "b") == b"kept"
    finally:
        left = running_s3(tmp_path / "s3")
        if left:
            left.stop()
    assert first.ports == second.ports == third.ports
    assert not [path for port in first.ports for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]


def test_it_can_be_started_by_one_process_and_stopped_by_another(tmp_path: Path) -> None:
    code = "import sys; from flows.services.s3 import start_s3; print(start_s3(sys.argv[1]).pid)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s3")], cwd=Path(__file__).parents[3], capture_output=True, text=True,
                          timeout=300, check=True)
    server = running_s3(tmp_path / "s3")
    assert server is not None and server.pid == int(done.stdout)
    put(server, "a")
    assert server.stop() is True and server.stop() is False


def test_credentials_are_private_and_not_on_the_command_line(s3_server: S3Server) -> None:
    path = s3_server.data_dir / "credentials.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(s3_server.data_dir.stat().st_mode) == 0o700
    secret = s3_server.credentials.secret_access_key
    process = psutil.Process(s3_server.pid)
    assert secret not in repr(s3_server) + " ".join(process.cmdline()) + str(process.environ())
    assert secret not in (s3_server.data_dir / "server.log").read_text() + (s3_server.data_dir / "server.json").read_text()


def test_given_credentials_are_used(tmp_path: Path) -> None:
    wanted = S3Credentials("my-key", "my-secret-of-some-length")
    server = start_s3(tmp_path / "s3", credentials=wanted, detached=False)
    try:
        assert server.credentials == wanted
        put(server, "a")
    finally:
        server.stop()


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        with pytest.raises(InputError, match="cannot be used: Address already in use"):
            start_s3(tmp_path / "s3", port=held.getsockname()[1])


def test_not_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunnerUnavailable, match="is not installed"):
        start_s3(tmp_path / "s3")


def test_a_server_that_ends_at_once_says_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weed").write_text("#!/bin/sh\necho out of luck\nexit 3\n")
    (tmp_path / "weed").chmod(0o755)
    monkeypatch.setattr(s3.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(s3.StoreError, match="ended while starting: out of luck"):
        start_s3(tmp_path / "s3")
