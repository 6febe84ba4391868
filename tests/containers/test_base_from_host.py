"""The base image made from this machine's Python."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import docker
import pytest


def test_the_same_content_makes_the_same_bytes(builder: ModuleType) -> None:
    base = builder.base_from_host
    files, links = base.contents()
    few = {name: files[name] for name in sorted(files)[:40]}
    first, second = io.BytesIO(), io.BytesIO()
    base.write_tar(first, few, links)
    base.write_tar(second, dict(reversed(few.items())), links)
    assert first.getvalue() == second.getvalue() and base.content_digest(few, links) == base.content_digest(dict(reversed(few.items())), links)
    first.seek(0)
    with tarfile.open(fileobj=first) as tar:
        members = {m.name: m for m in tar}
    assert {(m.uid, m.gid, m.mtime) for m in members.values()} == {(0, 0, 0)}
    assert members["tmp"].mode == 0o1777 and not any(m.mode & 0o6000 for m in members.values())


def test_a_changed_file_changes_the_digest(builder: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = builder.base_from_host.content_digest({"a": tmp_path / "a"}, {})
    (tmp_path / "a").write_text("2")
    assert builder.base_from_host.content_digest({"a": tmp_path / "a"}, {}) != before


@pytest.mark.docker
def test_the_image_runs_python_and_is_made_once(builder: ModuleType, engine: docker.DockerClient) -> None:
    base = builder.base_from_host
    first = base.ensure(base.TAG)
    assert base.ensure(base.TAG) == first
    assert engine.images.get(base.TAG).attrs["Size"] < 120e6
    code = "import bz2, ctypes, lzma, sqlite3, ssl, sys, venv, zlib, ensurepip; print(sys.version_info[:2], sys.prefix)"
    said = engine.containers.run(base.TAG, ["python", "-c", code], network_mode="none", remove=True, user="65534:65534", read_only=True)
    assert said.decode().strip() == f"{sys.version_info[:2]} /usr/local"
    said = engine.containers.run(base.TAG, ["bash", "-c", "ls -A /root /tmp /home | wc -w; echo $0"], network_mode="none", remove=True)
    assert said.decode().split() == ["2", "bash"], "of this machine's own files there is none: just the headings of two empty folders"
