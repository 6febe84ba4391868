"""Writing one version: files first, the manifest last. Until the manifest is there, nobody sees anything."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from artifacts.base import Document
from artifacts.errors import InputError, StoreError
from artifacts.manifest import FileEntry, Manifest, Producer, VersionRef
from artifacts.store.backend import CHUNK_BYTES, Backend
from artifacts.store.layout import MANIFEST, Layout, name_of
from artifacts.store.sealed import seal, unseal


class VersionWriter:
    """One attempt at a version. Attempts never share objects: a key that is taken (by an earlier attempt that died, or a
    concurrent one) is left alone, the file goes under a key of its own, and the manifest says which."""

    def __init__(self, backend: Backend, layout: Layout, ref: VersionRef, *, one_put_bytes: int = 4 << 30) -> None:
        self.ref = ref
        self._backend, self._layout = backend, layout
        self._folder = layout.version(ref)
        self._attempt = secrets.token_hex(6)
        self._one_put_bytes = one_put_bytes
        self._files: dict[str, FileEntry] = {}

    def put_document(self, document: Document) -> FileEntry:
        """Store a document as ``<artifact>.json``; its identity is what it means, not its bytes."""
        return self.put_bytes(f"{document.artifact}.json", document.to_json().encode(), identity=document.identity())

    def put_bytes(self, name: str, data: bytes, *, identity: str | None = None) -> FileEntry:
        digest = hashlib.sha256(data).hexdigest()
        return self._put(name, data, size_bytes=len(data), sha256=digest, identity=identity)

    def put_file(self, name: str, path: str | Path, *, identity: str | None = None) -> FileEntry:
        """Store a file's content without holding it in memory. The file must not change meanwhile."""
        path = Path(path)
        try:
            before = path.stat()
            digest = _digest_of(path)
            entry = self._put(name, path, size_bytes=before.st_size, sha256=digest, identity=identity)
            after = path.stat()
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or type(error).__name__}", fix="check the path") from None
        if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
            del self._files[name]
            raise StoreError(f"{path} changed while it was stored", fix="close the file before storing it")
        return entry

    def commit(
        self,
        *,
        producer: Producer,
        inputs: Mapping[str, VersionRef] | None = None,
        context: Mapping[str, list[VersionRef]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Make the version visible. If it has been committed already, that one stands and its manifest is returned."""
        self._check_stored()
        manifest = Manifest(
            pipeline=self._layout.pipeline,
            stage=self.ref.stage,
            version=self.ref.version,
            files=dict(self._files),
            inputs=dict(inputs or {}),
            context=dict(context or {}),
            parameters=dict(parameters or {}),
            summary=dict(summary or {}),
            producer=producer,
        )
        key = self._layout.manifest(self.ref)
        if self._backend.put_if_absent(key, seal(manifest)):
            return manifest
        data = self._backend.get(key)
        if data is None:
            raise StoreError(f"{self._backend.url}/{key} appeared and vanished", fix="run the stage again")
        return unseal(data, Manifest, where=f"{self._backend.url}/{key}")

    def _put(self, name: str, data: bytes | Path, *, size_bytes: int, sha256: str, identity: str | None) -> FileEntry:
        name = name_of("file", name, reserved=MANIFEST)
        if name in self._files:
            raise InputError(f"file {name} has been stored in this version already", fix="store each name once")
        key = name if size_bytes <= self._one_put_bytes else self._own_key(name)
        while not self._backend.put_if_absent(f"{self._folder}/{key}", data):
            key = self._own_key(name)
        entry = FileEntry(key=key, sha256=sha256, size_bytes=size_bytes, identity=identity or sha256)
        self._files[name] = entry
        return entry

    def _own_key(self, name: str) -> str:
        """A key only this attempt uses, with the ending kept for browsers: ``plan.try-3fa2c1d0b4e5-1.json``."""
        path = PurePosixPath(name)
        return f"{path.stem[:100]}.try-{self._attempt}-{secrets.token_hex(2)}{path.suffix[:60]}"

    def _check_stored(self) -> None:
        """A sweep with too short a bound may have taken files of a slow attempt: better no commit than a broken one."""
        sizes = {info.key: info.size_bytes for info in self._backend.objects(self._folder)}
        for name, entry in self._files.items():
            if sizes.get(f"{self._folder}/{entry.key}") != entry.size_bytes:
                raise StoreError(f"{self._backend.url}/{self._folder}/{entry.key} ({name}) is gone before the commit",
                                 fix="run the stage again; sweep only what is older than the longest stage")


def _digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
