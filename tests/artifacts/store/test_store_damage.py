"""Damage is found, named, and never passed on to a reader."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

import pytest

from artifacts.base import Document
from artifacts.errors import StoreError
from artifacts.manifest import Manifest, VersionRef
from artifacts.store import Store
from artifacts.store.sealed import seal, unseal
from tests.artifacts.store.store_places import Place, producer


class Note(Document):
    artifact: ClassVar[str] = "note"
    text: str


FOLDER = "hetrl/schedule/v1"


@pytest.fixture
def filled(store: Store) -> Store:
    """One published version with two files, and a lease."""
    writer = store.new_version("schedule", "v1")
    writer.put_document(Note(text="hello"))
    writer.put_bytes("table.csv", b"a,b\n1,2\n")
    store.publish(writer.commit(producer=producer(), summary={"time_s": 2.5}).ref)
    store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=60)
    return store


REF = VersionRef(stage="schedule", version="v1")


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1:]


def test_one_flipped_bit_in_any_object_is_found_by_verify(filled: Store, place: Place) -> None:
    rng = random.Random(0)
    keys = [info.key for info in filled.backend.objects("")]
    assert len(keys) == 5
    for key in keys:
        good = place.raw_get(key)
        for _ in range(6):
            place.raw_put(key, flipped(good, rng.randrange(len(good)), rng.randrange(8)))
            findings = filled.verify()
            assert [finding.key for finding in findings] == [key], findings
            assert key in findings[0].message
        place.raw_put(key, good)
    assert filled.verify() == []


def test_a_reader_refuses_altered_files_and_manifests(filled: Store, place: Place) -> None:
    good = place.raw_get(f"{FOLDER}/note.json")
    place.raw_put(f"{FOLDER}/note.json", good.replace(b"hello", b"jello"))
    with pytest.raises(StoreError, match=rf"{FOLDER}/note\.json is altered"):
        filled.read(REF, Note)
    assert filled.read_bytes(REF, "table.csv") == b"a,b\n1,2\n"
    place.raw_put(f"{FOLDER}/note.json", good)
    manifest = place.raw_get(f"{FOLDER}/manifest.json")
    place.raw_put(f"{FOLDER}/manifest.json", manifest.replace(b"2.5", b"3.5"))
    for use in (lambda: filled.read(REF, Note), lambda: filled.find("schedule", "v1"), lambda: filled.publish(REF)):
        with pytest.raises(StoreError, match=rf"{FOLDER}/manifest\.json is altered"):
            use()


def test_truncated_missing_and_grown_files_are_told_apart(filled: Store, place: Place) -> None:
    key = f"{FOLDER}/table.csv"
    good = place.raw_get(key)
    place.raw_put(key, good[:3])
    with pytest.raises(StoreError, match=r"table\.csv is truncated: 3 of 8 bytes"):
        filled.read_bytes(REF, "table.csv")
    assert [finding.fault for finding in filled.verify(REF)] == ["truncated"]
    place.raw_put(key, good + b"more")
    assert [finding.fault for finding in filled.verify(REF)] == ["altered"]
    place.raw_delete(key)
    with pytest.raises(StoreError, match=r"table\.csv is missing: the manifest of schedule@v1 names it"):
        filled.read_bytes(REF, "table.csv")
    assert [finding.fault for finding in filled.verify(REF)] == ["missing"]


def test_a_file_that_does_not_verify_is_not_left_on_disk(filled: Store, place: Place, tmp_path: Path) -> None:
    place.raw_put(f"{FOLDER}/table.csv", b"a,b\n1,3\n")
    with pytest.raises(StoreError, match="is altered"):
        filled.read_file(REF, "table.csv", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("data", [b"", b"{}", b"not json", b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_something_else_is_reported_not_crashed_on(filled: Store, place: Place, data: bytes) -> None:
    place.raw_put(f"{FOLDER}/manifest.json", data)
    findings = filled.verify()
    assert ("unreadable", f"{FOLDER}/manifest.json") in [(finding.fault, finding.key) for finding in findings]
    with pytest.raises(StoreError, match="truncated or altered"):
        filled.read(REF, Note)


def test_a_manifest_of_another_version_is_not_believed(filled: Store, place: Place) -> None:
    place.raw_put("hetrl/schedule/v2/manifest.json", place.raw_get(f"{FOLDER}/manifest.json"))
    with pytest.raises(StoreError, match=r"is the manifest of hetrl/schedule@v1: somebody moved it"):
        filled.find("schedule", "v2")


def test_a_manifest_cannot_name_a_file_outside_its_folder(filled: Store, place: Place) -> None:
    manifest = filled.manifest(REF)
    entry = manifest.files["table.csv"].model_copy(update={"key": "../../../secret"})
    place.raw_put(f"{FOLDER}/manifest.json", seal(manifest.model_copy(update={"files": {"table.csv": entry}})))
    with pytest.raises(StoreError, match="names an object outside its folder"):
        filled.read_bytes(REF, "table.csv")
    assert [finding.fault for finding in filled.verify(REF)] == ["altered"]


def test_a_published_version_that_vanished_is_a_finding(filled: Store, place: Place) -> None:
    place.raw_delete(f"{FOLDER}/manifest.json")
    (finding,) = filled.verify()
    assert finding.fault == "missing" and "history/1.json names schedule@v1, which is not there" in finding.message
    assert [finding.fault for finding in filled.verify(REF)] == ["missing"]


def test_an_altered_lease_keeps_everybody_out(filled: Store, place: Place) -> None:
    good = place.raw_get("hetrl/leases/lab/1.json")
    place.raw_put("hetrl/leases/lab/1.json", good.replace(b"anna", b"hann"))
    with pytest.raises(StoreError, match=r"leases/lab/1\.json is altered"):
        filled.acquire_lease("lab", holder="ben", run_id="r2", ttl_s=60)


def test_no_flipped_bit_of_a_manifest_escapes_its_seal() -> None:
    manifest = Manifest(pipeline="p", stage="s", version="v", files={}, summary={"x": 1.5, "naïve": [True, None]}, producer=producer())
    data = seal(manifest)
    assert unseal(data, Manifest, where="here") == manifest
    for position in range(len(data)):
        for bit in range(8):
            with pytest.raises(StoreError, match="altered"):
                unseal(flipped(data, position, bit), Manifest, where="here")
    for length in range(len(data)):
        with pytest.raises(StoreError, match="truncated or altered"):
            unseal(data[:length], Manifest, where="here")
