"""The contract of a backend, the same for a folder, SeaweedFS and (where it is installed) Ceph."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts.errors import InputError
from artifacts.store import StoreSettings
from artifacts.store.backend import Backend
from tests.artifacts.store.store_places import Place, own_url


@pytest.fixture(params=["file", "s3", "ceph"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "file":
        return Place((tmp_path / "store").as_uri()).open().backend
    if request.param == "ceph":
        settings = request.getfixturevalue("ceph_rgw")
    else:
        settings = StoreSettings.from_env(request.getfixturevalue("s3_server").environment())
    return Place(own_url(), settings).open().backend


def test_an_empty_place_reads_as_empty(backend: Backend) -> None:
    assert (backend.get("a/b"), backend.read_chunks("a/b"), backend.objects(""), backend.folders("a")) == (None, None, [], [])
    assert backend.sweep_unfinished(0) == []


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 12_345])
def test_bytes_come_back_as_they_went_in(backend: Backend, data: bytes) -> None:
    assert backend.put_if_absent("a/b.bin", data) is True
    assert backend.get("a/b.bin") == data
    chunks = backend.read_chunks("a/b.bin")
    assert chunks is not None and b"".join(chunks) == data
    (info,) = backend.objects("")
    assert (info.key, info.size_bytes) == ("a/b.bin", len(data))
    assert abs(info.modified_s - time.time()) < 60


def test_a_key_is_written_once(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"third")
    assert [backend.put_if_absent("a", b"first"), backend.put_if_absent("a", b"second"), backend.put_if_absent("a", tmp_path / "file")] == [
        True, False, False]
    assert backend.get("a") == b"first"


def test_a_file_is_stored_like_bytes(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"z" * 3_000_000)
    assert backend.put_if_absent("big", tmp_path / "file")
    assert backend.get("big") == b"z" * 3_000_000


def test_of_racing_writers_of_a_key_exactly_one_succeeds(backend: Backend) -> None:
    backend.put_if_absent("warm", b"")
    with ThreadPoolExecutor(12) as pool:
        for number in range(4):  # SeaweedFS makes the losers of a race wait, a second at a time
            bodies = [f"{writer}".encode() * 4000 for writer in range(12)]
            won = list(pool.map(lambda body, key=f"race/{number}": backend.put_if_absent(key, body), bodies))
            assert won.count(True) == 1
            assert backend.get(f"race/{number}") == bodies[won.index(True)]


def test_listing_is_sorted_and_keeps_to_its_folder(backend: Backend) -> None:
    for key in ("p/b/1", "p/a/2", "p/a/10", "pq/x", "p/c"):
        backend.put_if_absent(key, b"1")
    assert [info.key for info in backend.objects("p")] == ["p/a/10", "p/a/2", "p/b/1", "p/c"]
    assert backend.folders("p") == ["a", "b"]
    assert backend.folders("") == ["p", "pq"]
    assert [info.key for info in backend.objects("p/a")] == ["p/a/10", "p/a/2"]


def test_a_listing_longer_than_a_page_is_complete(backend: Backend) -> None:
    backend.put_if_absent("warm", b"")
    keys = [f"many/{number:04d}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda key: backend.put_if_absent(key, b"x"), keys))
    assert [info.key for info in backend.objects("many")] == keys


def test_what_is_deleted_is_gone_and_may_be_written_again(backend: Backend) -> None:
    backend.put_if_absent("a/b/c", b"1")
    backend.put_if_absent("a/d", b"2")
    backend.delete(["a/b/c", "a/never/there"])
    assert backend.get("a/b/c") is None
    assert [info.key for info in backend.objects("")] == ["a/d"]
    assert backend.put_if_absent("a/b/c", b"3")
    assert backend.get("a/b/c") == b"3"


@pytest.mark.parametrize("key", ["../x", "a/../x", "/a", "a//b", "a/", "", ".", "a/./b", ".hidden/x", "a\\b", "a\nb", "a\0b", "x" * 300])
def test_a_key_that_leaves_its_folder_is_refused(backend: Backend, key: str) -> None:
    for use in (lambda: backend.put_if_absent(key, b"1"), lambda: backend.get(key), lambda: backend.read_chunks(key),
                lambda: backend.delete([key])):
        with pytest.raises(InputError, match="is not an object name"):
            use()
