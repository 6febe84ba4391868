"""A stand-in for the official Postgres image where no registry can be reached: Debian's own Postgres, with the official image's variables.

It honours ``POSTGRES_USER``, ``POSTGRES_DB`` and ``POSTGRES_PASSWORD_FILE`` as that image does: at the first start it makes the database with
a server that only its socket reaches, then starts the one that listens. It never runs as root, so it needs no ``gosu``.
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import docker

ROOT = Path(__file__).parents[2]
PROGRAMS = Path("/usr/lib/postgresql/15")
"""What Debian's package postgresql-15 installs, besides the next two."""
SHARED = Path("/usr/share/postgresql/15")
ZONES = Path("/usr/share/zoneinfo")
LABEL = "hetrl.stand-in"
_START = """#!/bin/sh
# A stand-in for the entry point of the image postgres:15.
set -eu
echo "hetrl: a stand-in for postgres:15, made of Debian's Postgres"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 --no-locale -E UTF8 --no-sync
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
  [ "$POSTGRES_DB" = postgres ] || createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl -D "$PGDATA" -m fast -w stop
fi
exec postgres -D "$PGDATA" -c listen_addresses='*'
"""
_RECIPE = """FROM {base}
COPY files /
ENV PGDATA=/var/lib/postgresql/data PATH={programs}/bin:$PATH
RUN mkdir -p /var/lib/postgresql/data /var/run/postgresql && chown 65534:65534 /var/lib/postgresql/data /var/run/postgresql
USER 65534:65534
LABEL {label}=postgres:15
ENTRYPOINT ["/usr/local/bin/start-postgres"]
"""


def missing() -> str:
    """Why it cannot be made here; "" when it can."""
    return "" if (PROGRAMS / "bin/postgres").exists() else "Postgres 15 is not installed: apt-get install postgresql-15"


def build(engine: docker.DockerClient, tag: str) -> None:
    """Make the image ``tag``. Of Postgres and of the libraries it is linked against, what is installed here."""
    base = _base_from_host()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        recipe = _RECIPE.format(base=base.ensure(base.TAG), programs=PROGRAMS, label=LABEL)
        for name, text, mode in (("Dockerfile", recipe, 0o644), ("files/usr/local/bin/start-postgres", _START, 0o755)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), mode
            tar.addfile(member, io.BytesIO(text.encode()))
        compiled = [path for path in _installed() if path.parent.name == "bin" or path.suffix == ".so"]
        libraries = {f"/{name}": path for name, path in base._shared_libraries(compiled).items()}
        for name, path in {**{str(p): p for p in _installed()}, **libraries}.items():
            tar.add(path.resolve(), f"files{name}", recursive=False)
    context.seek(0)
    engine.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, network_mode="none")


def _installed() -> Iterator[Path]:
    """Without its compiler of queries (LLVM), which it does without, and without the second and third copy of every time zone."""
    for folder in (PROGRAMS / "bin", PROGRAMS / "lib", SHARED, ZONES):
        for path in folder.rglob("*"):
            if path.is_file() and not {"bitcode", "posix", "right"}.intersection(path.parts) and "llvm" not in path.name:
                yield path


def _base_from_host() -> ModuleType:
    spec = importlib.util.spec_from_file_location("base_from_host", ROOT / "containers/base_from_host.py")
    assert spec and spec.loader
    base = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(base)
    return base
