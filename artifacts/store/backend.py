"""What the store asks of the place its objects live in: unique keys, a conditional put, reading, listing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from artifacts.errors import InputError

CHUNK_BYTES = 1 << 20
MOST_KEY_BYTES = 1000


class ObjectInfo(NamedTuple):
    """One stored object, as a listing shows it. ``modified_s`` is seconds since the epoch, by the clock of the store."""

    key: str
    size_bytes: int
    modified_s: float


class Backend(Protocol):
    """A flat set of objects. Keys are relative to the store's root, parts separated by '/'. Every failure is a ``StoreError``."""

    url: str

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        """Store ``data`` (bytes, or a file's content) under ``key`` whole or not at all. False: the key is taken, nothing was changed."""
        ...

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None when there is no such object."""
        ...

    def read_chunks(self, key: str) -> Iterator[bytes] | None:
        """The object piece by piece, for what does not fit in memory; None when there is no such object."""
        ...

    def objects(self, folder: str) -> list[ObjectInfo]:
        """All objects below ``folder`` ('' for the root), sorted by key."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Names of the folders directly below ``folder``, sorted; some servers show one for a while after its last object went."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error."""
        ...

    def sweep_unfinished(self, older_than_s: float) -> list[str]:
        """Remove what interrupted writes left outside the key space (temporary files, multipart uploads); say what."""
        ...


def check_key(key: str) -> str:
    """``key`` if it stays in its folder, else ``InputError``: no empty, '.', '..' or hidden part, no backslash or control character."""
    parts = key.split("/")
    bad = any(not part or part.startswith(".") or len(part.encode()) > 255 for part in parts)
    if bad or "\\" in key or not key.isprintable() or len(key.encode()) > MOST_KEY_BYTES:
        raise InputError(f"{key[:80]!r} is not an object name", fix="use letters, digits, '.', '_', '-' between single slashes")
    return key
