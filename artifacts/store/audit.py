"""Looking after a store: is every byte what its manifest says, and what may be thrown away."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Literal

from artifacts.base import Strict
from artifacts.errors import StoreError
from artifacts.manifest import FileEntry, LeaseRecord, Manifest, VersionRef
from artifacts.store.backend import Backend
from artifacts.store.layout import LEASES, MANIFEST, Layout
from artifacts.store.log import NumberedLog

Fault = Literal["missing", "truncated", "altered", "unreadable"]


class Finding(Strict):
    """One thing that is wrong. ``key`` is the object, relative to the store's address."""

    fault: Fault
    key: str
    message: str
    ref: VersionRef | None = None


def check_entry(backend: Backend, folder: str, name: str, entry: FileEntry) -> tuple[Fault, str] | None:
    """What is wrong with a stored file, judged by its manifest; None when nothing is. Reads it piece by piece."""
    where = f"{backend.url}/{folder}/{entry.key}"
    if not is_plain(entry.key):
        return "altered", f"{folder}/{MANIFEST} names an object outside its folder for {name}"
    chunks = backend.read_chunks(f"{folder}/{entry.key}")
    if chunks is None:
        return "missing", f"{where} is missing"
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
    return judge(where, entry, size_bytes=size, sha256=digest.hexdigest())


def judge(where: str, entry: FileEntry, *, size_bytes: int, sha256: str) -> tuple[Fault, str] | None:
    if size_bytes < entry.size_bytes:
        return "truncated", f"{where} is truncated: {size_bytes} of {entry.size_bytes} bytes"
    if size_bytes != entry.size_bytes or sha256 != entry.sha256:
        return "altered", f"{where} is altered: its sha256 is not the manifest's"
    return None


def is_plain(key: str) -> bool:
    """A manifest that was tampered with must not make a reader leave the version's folder."""
    return bool(key) and "/" not in key and "\\" not in key and not key.startswith(".") and key != MANIFEST


def verify_version(backend: Backend, layout: Layout, manifest: Manifest) -> Iterator[Finding]:
    folder = layout.version(manifest.ref)
    for name, entry in sorted(manifest.files.items()):
        try:
            wrong = check_entry(backend, folder, name, entry)
        except StoreError as error:
            wrong = ("unreadable", error.message)
        if wrong:
            yield Finding(fault=wrong[0], key=f"{folder}/{entry.key}", message=wrong[1], ref=manifest.ref)


def verify_leases(backend: Backend, layout: Layout) -> Iterator[Finding]:
    for cluster in backend.folders(f"{layout.pipeline}/{LEASES}"):
        log = NumberedLog(backend, layout.leases(cluster), LeaseRecord)
        for epoch in log.numbers():
            try:
                log.read(epoch)
            except StoreError as error:
                yield Finding(fault="altered", key=log.key(epoch), message=error.message)


def sweep_attempts(
    backend: Backend, layout: Layout, stage: str, *, older_than_s: float, committed: dict[str, Manifest | None]
) -> list[str]:
    """Remove what attempts left behind that will never be committed; returns the keys.

    ``committed`` has every version with a manifest (None: it cannot be read, so its folder is left alone). Of a version
    without one, everything goes once its *youngest* object is older than the bound; of a committed one, only objects that
    its manifest does not name: losers of a race, or an attempt that died before another succeeded.
    """
    oldest = time.time() - older_than_s
    folders: dict[str, dict[str, float]] = {}
    for info in backend.objects(layout.stage(stage)):
        parts = info.key.split("/")
        if len(parts) == 4 and parts[2] != "history":
            folders.setdefault(parts[2], {})[info.key] = info.modified_s
    doomed: list[str] = []
    for version, objects in folders.items():
        if version not in committed:
            if max(objects.values()) <= oldest and backend.get(f"{layout.stage(stage)}/{version}/{MANIFEST}") is None:
                doomed += objects
        elif (manifest := committed[version]) is not None:
            kept = {f"{layout.stage(stage)}/{version}/{name}" for name in (MANIFEST, *(e.key for e in manifest.files.values()))}
            doomed += [key for key, modified in objects.items() if key not in kept and modified <= oldest]
    backend.delete(doomed)
    return sorted(doomed)
