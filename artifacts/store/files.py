"""The store in a folder. An object appears by ``link(2)``, which is atomic and refuses a name that is taken."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from artifacts.errors import StoreError
from artifacts.store.backend import CHUNK_BYTES, ObjectInfo, check_key

_TEMPORARY = ".tmp"


class FileBackend:
    """Objects as files below ``root``. What is half written is in ``.tmp``, which no key can name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        target = self._path(key)
        try:
            if target.exists():
                return False
            temporary = self._write_temporary(data)
            try:
                return _link(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            self._fail("write", key, error)

    def get(self, key: str) -> bytes | None:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._fail("read", key, error)

    def read_chunks(self, key: str) -> Iterator[bytes] | None:
        try:
            handle = self._path(key).open("rb")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._fail("read", key, error)
        return self._chunks(key, handle)

    def _chunks(self, key: str, handle: BinaryIO) -> Iterator[bytes]:
        with handle:
            try:
                while chunk := handle.read(CHUNK_BYTES):
                    yield chunk
            except OSError as error:
                self._fail("read", key, error)

    def objects(self, folder: str) -> list[ObjectInfo]:
        top = self._path(folder) if folder else self.root
        found = []
        for directory, names, files in os.walk(top, onerror=lambda error: self._ignore_absent(folder, error)):
            names[:] = [name for name in names if not name.startswith(".")]
            for name in files:
                path = Path(directory, name)
                try:
                    status = path.stat()
                except FileNotFoundError:  # removed since the folder was read
                    continue
                if not name.startswith("."):
                    found.append(ObjectInfo(path.relative_to(self.root).as_posix(), status.st_size, status.st_mtime))
        return sorted(found)

    def folders(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._path(folder) if folder else self.root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        except OSError as error:
            self._ignore_absent(folder, error)
            return []

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            try:
                path.unlink(missing_ok=True)
                for parent in path.parents:  # a folder exists because of its objects
                    if parent == self.root:
                        break
                    parent.rmdir()
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                    self._fail("remove", key, error)

    def sweep_unfinished(self, older_than_s: float) -> list[str]:
        removed, oldest = [], time.time() - older_than_s
        folder = self.root / _TEMPORARY
        try:
            for path in sorted(folder.iterdir()) if folder.is_dir() else []:
                if path.stat().st_mtime <= oldest:
                    path.unlink(missing_ok=True)
                    removed.append(f"{_TEMPORARY}/{path.name}")
        except OSError as error:
            self._ignore_absent(_TEMPORARY, error)
        return removed

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _write_temporary(self, data: bytes | Path) -> Path:
        folder = self.root / _TEMPORARY
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            with path.open("xb") as handle:
                if isinstance(data, Path):
                    with data.open("rb") as source:
                        shutil.copyfileobj(source, handle, CHUNK_BYTES)
                else:
                    handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _ignore_absent(self, folder: str, error: OSError) -> None:
        if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
            self._fail("list", folder, error)

    def _fail(self, action: str, key: str, error: OSError) -> NoReturn:
        reason = error.strerror or type(error).__name__
        fix = "give the store a folder you may write to, with room left"
        if error.errno in {errno.EPERM, errno.ENOTSUP, errno.EMLINK} and action == "write":
            fix = "use a file system with hard links (commits are made by link), or an s3:// store"
        raise StoreError(f"cannot {action} {error.filename or self.root / key}: {reason}", fix=fix) from None


def _link(temporary: Path, target: Path) -> bool:
    """Give ``temporary`` its name for good; False when the name is taken. Durable when it returns."""
    for attempt in range(10):
        _make_folders(target.parent)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except FileNotFoundError:  # a sweep removed the folder while it was still empty
            if attempt == 9:
                raise
            continue
        _sync_folder(target.parent)
        return True
    raise AssertionError("unreachable")


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
