"""A single-node Ceph RGW for tests (mon, one osd in memory, rgw; no mgr), where ceph-mon, ceph-osd and radosgw are installed.

Shortened where durability does not matter: one placement group a pool, objects in memory, quick proposals.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from artifacts.store import StoreSettings

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
CONFIG = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon_port}]
public_network = 127.0.0.0/8
keyring = {folder}/keyring
run_dir = {folder}
admin_socket =
log_file = {folder}/$name.log
mon_data = {folder}/mon
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = 1073741824
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 1000
paxos_propose_interval = 0.05
osd_max_object_name_len = 256
rgw_frontends = beast endpoint=127.0.0.1:{rgw_port} tcp_nodelay=1
rgw_enable_usage_log = false
rgw_rados_pool_pg_num_min = 1
"""


@contextmanager
def rgw(folder: Path) -> Iterator[StoreSettings]:
    """Skips the test when Ceph is not installed."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        pytest.skip(f"Ceph is not installed ({', '.join(lacking)}): apt-get install ceph-mon ceph-osd radosgw")
    mon_port, rgw_port = _free_ports(2)
    fsid = str(uuid.uuid4())
    config = folder / "ceph.conf"
    config.write_text(CONFIG.format(fsid=fsid, folder=folder, mon_port=mon_port, rgw_port=rgw_port))
    settings = StoreSettings(access_key_id="cephkey", secret_access_key=secrets.token_hex(16), endpoint_url=f"http://127.0.0.1:{rgw_port}",
                             path_style=True)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        _start(folder, config, fsid, mon_port, daemons)
        _call(config, "radosgw-admin", "user", "create", "--uid=hetrl", "--display-name=hetrl", f"--access-key={settings.access_key_id}",
              f"--secret-key={settings.secret_access_key}")
        _wait(settings)
        yield settings
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
            daemon.wait()


def _start(folder: Path, config: Path, fsid: str, mon_port: int, daemons: list[subprocess.Popen[bytes]]) -> None:
    keyring = str(folder / "keyring")
    _call(config, "ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    _call(config, "ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *",
          "--cap", "mgr", "allow *")
    monmap = str(folder / "monmap")
    _call(config, "monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{mon_port}]", "--fsid", fsid, monmap)
    (folder / "mon").mkdir()
    (folder / "osd").mkdir()
    _call(config, "ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
    daemons.append(_daemon(folder, config, "ceph-mon", "-i", "a"))
    osd = str(uuid.uuid4())
    _call(config, "ceph", "osd", "new", osd)
    _call(config, "ceph-authtool", "--create-keyring", str(folder / "osd/keyring"), "--gen-key", "-n", "osd.0")
    _call(config, "ceph", "-i", str(folder / "osd/keyring"), "auth", "add", "osd.0", "mon", "allow profile osd", "osd", "allow *")
    _call(config, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd, "--keyring", str(folder / "osd/keyring"))
    daemons.append(_daemon(folder, config, "ceph-osd", "-i", "0", "--keyring", str(folder / "osd/keyring")))
    daemons.append(_daemon(folder, config, "radosgw", "-n", "client.admin"))


def _call(config: Path, program: str, *arguments: str) -> str:
    done = subprocess.run([program, "-c", str(config), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{program} {arguments[0]}: {done.stderr[-500:]}"
    return done.stdout


def _daemon(folder: Path, config: Path, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{program}.out").open("wb") as output:
        return subprocess.Popen([program, "-c", str(config), "-f", *arguments], stdout=output, stderr=output)


def _wait(settings: StoreSettings) -> None:
    client = boto3.client("s3", endpoint_url=settings.endpoint_url, region_name=settings.region, aws_access_key_id=settings.access_key_id,
                          aws_secret_access_key=settings.secret_access_key, config=Config(retries={"total_max_attempts": 1}, proxies={}))
    deadline = time.monotonic() + 300
    while True:
        try:
            client.list_buckets()
            return
        except (ClientError, BotoCoreError):
            assert time.monotonic() < deadline, "Ceph RGW did not answer within five minutes"
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
