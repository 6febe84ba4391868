"""The store of one pipeline: committed versions, what was published, what came from what, who holds which cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import Field

from artifacts.base import Document, Name, Strict
from artifacts.errors import StoreError
from artifacts.manifest import FileEntry, LeaseRecord, Manifest, VersionRef
from artifacts.store import audit, leases
from artifacts.store.audit import Finding
from artifacts.store.backend import Backend
from artifacts.store.files import FileBackend
from artifacts.store.layout import HISTORY, LEASES, MANIFEST, Layout, make_ref
from artifacts.store.leases import Lease
from artifacts.store.log import NumberedLog
from artifacts.store.s3 import S3Backend
from artifacts.store.sealed import unseal
from artifacts.store.settings import StoreSettings
from artifacts.store.url import parse_url
from artifacts.store.writer import VersionWriter

D = TypeVar("D", bound=Document)

_AGAIN = "run the stage again with --force, or restore the object from a backup"


class HistoryEntry(Document):
    """The n-th published version of a stage."""

    artifact: ClassVar[str] = "history"

    stage: Name
    version: Name
    published_at: datetime


class LineageNode(Strict):
    """A version and where it came from; ``manifest`` is None when the version is gone, ``problem`` says why."""

    ref: VersionRef
    manifest: Manifest | None
    inputs: dict[str, LineageNode] = Field(default_factory=dict, description="artifact name → the version it was read from")
    problem: str = ""


def open_store(url: str, *, pipeline: str = "hetrl", settings: StoreSettings | None = None) -> Store:
    """The store at ``file:///absolute/folder`` or ``s3://bucket/prefix``. Nothing is touched before the first call on it."""
    address = parse_url(url)
    if address.scheme == "file":
        return Store(FileBackend(Path(address.root)), pipeline=pipeline)
    settings = settings or StoreSettings.from_env()
    backend = S3Backend(address.root, address.prefix, settings)
    return Store(backend, pipeline=pipeline, one_put_bytes=settings.multipart_above_bytes)


class Store:
    """Reads check sha256 and size against the manifest; writes never overwrite. Failures are ``StoreError``."""

    def __init__(self, backend: Backend, *, pipeline: str = "hetrl", one_put_bytes: int = 4 << 30) -> None:
        self.backend = backend
        self.layout = Layout(pipeline)
        self._one_put_bytes = one_put_bytes

    @property
    def url(self) -> str:
        return self.backend.url

    @property
    def pipeline(self) -> str:
        return self.layout.pipeline

    # Reading

    def find(self, stage: str, version: str) -> Manifest | None:
        """The manifest of a committed version; None when there is none. ``StoreError`` when it is there but altered."""
        ref = make_ref(stage, version)
        key = self.layout.manifest(ref)
        data = self.backend.get(key)
        if data is None:
            return None
        manifest = unseal(data, Manifest, where=f"{self.url}/{key}")
        if (manifest.pipeline, manifest.ref) != (self.pipeline, ref):
            raise StoreError(f"{self.url}/{key} is the manifest of {manifest.pipeline}/{manifest.ref}: somebody moved it", fix=_AGAIN)
        return manifest

    def manifest(self, ref: VersionRef) -> Manifest:
        manifest = self.find(ref.stage, ref.version)
        if manifest is None:
            raise StoreError(f"{ref} is not in {self.url}/{self.pipeline}", fix="`hetrl artifacts ls` shows what is")
        return manifest

    def read_bytes(self, ref: VersionRef, file_name: str) -> bytes:
        """A file of a committed version, verified."""
        entry, folder = self._entry(ref, file_name)
        where = f"{self.url}/{folder}/{entry.key}"
        data = self.backend.get(f"{folder}/{entry.key}")
        if data is None:
            raise StoreError(f"{where} is missing: the manifest of {ref} names it", fix=_AGAIN)
        wrong = audit.judge(where, entry, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        if wrong:
            raise StoreError(wrong[1], fix=_AGAIN, details={"fault": wrong[0], "version": str(ref), "file": file_name})
        return data

    def read_file(self, ref: VersionRef, file_name: str, to: str | Path) -> Path:
        """Like :meth:`read_bytes`, into the file ``to``, piece by piece; a file that does not verify is removed again."""
        entry, folder = self._entry(ref, file_name)
        where, target = f"{self.url}/{folder}/{entry.key}", Path(to)
        chunks = self.backend.read_chunks(f"{folder}/{entry.key}")
        if chunks is None:
            raise StoreError(f"{where} is missing: the manifest of {ref} names it", fix=_AGAIN)
        digest, size = hashlib.sha256(), 0
        try:
            with target.open("wb") as handle:
                for chunk in chunks:
                    handle.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror}", fix="give a folder with room that you may write to") from None
        wrong = audit.judge(where, entry, size_bytes=size, sha256=digest.hexdigest())
        if wrong:
            target.unlink()
            raise StoreError(wrong[1], fix=_AGAIN, details={"fault": wrong[0], "version": str(ref), "file": file_name})
        return target

    def read(self, ref: VersionRef, document: type[D]) -> D:
        """A document of a committed version: ``store.read(ref, Plan)``."""
        name = f"{document.artifact}.json"
        return document.from_json(self.read_bytes(ref, name), where=f"{name} of {ref}")

    def _entry(self, ref: VersionRef, file_name: str) -> tuple[FileEntry, str]:
        manifest = self.manifest(ref)
        entry = manifest.files.get(file_name)
        if entry is None:
            raise StoreError(f"{ref} has no file {file_name[:130]!r}", fix="it has " + (", ".join(sorted(manifest.files)) or "no files"))
        if not audit.is_plain(entry.key):
            raise StoreError(f"the manifest of {ref} names an object outside its folder for {file_name}", fix=_AGAIN)
        return entry, self.layout.version(ref)

    # Writing

    def new_version(self, stage: str, version: str) -> VersionWriter:
        """Start an attempt at a version. Many may run at once; the first commit wins."""
        return VersionWriter(self.backend, self.layout, make_ref(stage, version), one_put_bytes=self._one_put_bytes)

    def publish(self, ref: VersionRef) -> int:
        """Make a committed version the latest of its stage; its number in the history. Does nothing if it is the latest already."""
        self.manifest(ref)
        log = self._history(ref.stage)
        while True:
            number, last = log.last()
            if last is not None and last.version == ref.version:
                return number
            entry = HistoryEntry(stage=ref.stage, version=ref.version, published_at=datetime.now(UTC))
            if log.append(number + 1, entry):
                return number + 1

    def remove(self, ref: VersionRef) -> None:
        """Take back a version that was never published: from now on it is not there, and its files go."""
        manifest = self.layout.manifest(ref)
        self.backend.delete([manifest])
        self.backend.delete([info.key for info in self.backend.objects(self.layout.version(ref))])

    # What there is

    def latest(self, stage: str) -> VersionRef | None:
        """The version published last."""
        _, entry = self._history(stage).last()
        return None if entry is None else make_ref(entry.stage, entry.version)

    def history(self, stage: str) -> list[VersionRef]:
        """Every publication, oldest first; a version published again after another appears again."""
        log = self._history(stage)
        entries = [log.read(number) for number in log.numbers()]
        return [make_ref(entry.stage, entry.version) for entry in entries]

    def stages(self) -> list[str]:
        """Stages with a committed version."""
        return [stage for stage in self._stage_folders() if self.versions(stage)]

    def versions(self, stage: str) -> list[VersionRef]:
        """Committed versions, oldest first by the time of their commit."""
        found = []
        for info in self.backend.objects(self.layout.stage(stage)):
            parts = info.key.split("/")
            if len(parts) == 4 and parts[3] == MANIFEST and parts[2] != HISTORY:
                found.append((info.modified_s, parts[2]))
        return [make_ref(stage, version) for _, version in sorted(found)]

    def lineage(self, ref: VersionRef) -> LineageNode:
        """``ref`` and, recursively, the versions it was made from. A version that is gone or altered is a leaf that says so."""
        return self._lineage(ref, {}, ())

    def _lineage(self, ref: VersionRef, done: dict[VersionRef, LineageNode], above: tuple[VersionRef, ...]) -> LineageNode:
        if ref in above:
            return LineageNode(ref=ref, manifest=None, problem="comes from itself: its manifest is wrong")
        if ref not in done:
            try:
                manifest = self.manifest(ref)
                inputs = {name: self._lineage(source, done, (*above, ref)) for name, source in sorted(manifest.inputs.items())}
                done[ref] = LineageNode(ref=ref, manifest=manifest, inputs=inputs)
            except StoreError as error:
                done[ref] = LineageNode(ref=ref, manifest=None, problem=error.message)
        return done[ref]

    # Care

    def verify(self, ref: VersionRef | None = None) -> list[Finding]:
        """Read every byte of one version, or of everything, and say what is wrong."""
        if ref is not None:
            return list(self._verify_version(ref))
        found = [finding for stage in self._stage_folders() for finding in self._verify_stage(stage)]
        return found + list(audit.verify_leases(self.backend, self.layout))

    def _verify_version(self, ref: VersionRef) -> Iterator[Finding]:
        key = self.layout.manifest(ref)
        try:
            manifest = self.find(ref.stage, ref.version)
        except StoreError as error:
            yield Finding(fault="unreadable", key=key, message=error.message, ref=ref)
            return
        if manifest is None:
            yield Finding(fault="missing", key=key, message=f"{self.url}/{key} is missing: {ref} is not committed", ref=ref)
            return
        yield from audit.verify_version(self.backend, self.layout, manifest)

    def _verify_stage(self, stage: str) -> Iterator[Finding]:
        versions = self.versions(stage)
        for ref in versions:
            yield from self._verify_version(ref)
        log = self._history(stage)
        for number in log.numbers():
            try:
                entry = log.read(number)
            except StoreError as error:
                yield Finding(fault="altered", key=log.key(number), message=error.message)
                continue
            if make_ref(stage, entry.version) not in versions:
                key = self.layout.manifest(make_ref(stage, entry.version))
                yield Finding(fault="missing", key=key, message=f"{log.where(number)} names {stage}@{entry.version}, which is not there")

    def sweep(self, older_than_s: float) -> list[str]:
        """Remove what attempts older than ``older_than_s`` left and nobody committed; returns what was removed.

        No attempt that still runs may be older than that. Committed versions keep every file their manifest names.
        """
        removed = self.backend.sweep_unfinished(older_than_s)
        for stage in self._stage_folders():
            committed: dict[str, Manifest | None] = {}
            for ref in self.versions(stage):
                try:
                    committed[ref.version] = self.find(ref.stage, ref.version)
                except StoreError:
                    committed[ref.version] = None
            removed += audit.sweep_attempts(self.backend, self.layout, stage, older_than_s=older_than_s, committed=committed)
        return removed

    # Leases

    def acquire_lease(self, cluster: str, *, holder: str, run_id: str, ttl_s: float) -> Lease:
        """Take the cluster for ``ttl_s`` seconds, or raise ``ClusterBusy``. Use as a context manager, and renew in time."""
        return leases.acquire(self._leases(cluster), cluster, holder=holder, run_id=run_id, ttl_s=ttl_s)

    def lease(self, cluster: str) -> LeaseRecord | None:
        """The last record of a cluster's lease, whatever its state; None when it was never taken."""
        return self._leases(cluster).last()[1]

    def clusters(self) -> list[str]:
        """Clusters whose lease was ever taken."""
        return self.backend.folders(f"{self.pipeline}/{LEASES}")

    def _leases(self, cluster: str) -> NumberedLog[LeaseRecord]:
        return NumberedLog(self.backend, self.layout.leases(cluster), LeaseRecord)

    def _history(self, stage: str) -> NumberedLog[HistoryEntry]:
        return NumberedLog(self.backend, self.layout.history(stage), HistoryEntry)

    def _stage_folders(self) -> list[str]:
        return [name for name in self.backend.folders(self.pipeline) if name != LEASES]
