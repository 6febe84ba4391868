"""Versions: visible once committed, never changed afterwards, published in order, traced to what they came from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from artifacts.base import Document
from artifacts.errors import InputError, StoreError
from artifacts.manifest import Manifest, VersionRef
from artifacts.store import Store
from tests.artifacts.store.store_places import Place, producer


class Note(Document):
    artifact: ClassVar[str] = "note"
    volatile: ClassVar[frozenset[str]] = frozenset({"written_at"})

    text: str
    written_at: str = ""


def commit(store: Store, stage: str, version: str, *, text: str = "hello", inputs: dict[str, VersionRef] | None = None) -> Manifest:
    writer = store.new_version(stage, version)
    writer.put_document(Note(text=text))
    return writer.commit(producer=producer(), inputs=inputs, summary={"text": text})


def test_what_was_committed_is_read_back(store: Store) -> None:
    writer = store.new_version("schedule", "v1")
    note = Note(text="naïve ≤ 模型", written_at="today")
    writer.put_document(note)
    writer.put_bytes("table.csv", b"a,b\n1,2\n")
    upstream = VersionRef(stage="profile", version="p1")
    manifest = writer.commit(producer=producer(), inputs={"topology": upstream}, context={"plan": [upstream]},
                             parameters={"seed": 1, "budget_s": 0.1}, summary={"time_s": 2.5})
    assert store.manifest(manifest.ref) == manifest
    assert store.read(manifest.ref, Note) == note
    assert store.read_bytes(manifest.ref, "table.csv") == b"a,b\n1,2\n"
    assert manifest.files["note.json"].identity == Note(text="naïve ≤ 模型").identity()
    assert manifest.files["table.csv"].identity == manifest.files["table.csv"].sha256
    assert manifest.inputs == {"topology": upstream}
    assert store.verify() == []


def test_a_version_is_invisible_until_it_is_committed(store: Store) -> None:
    assert (store.find("schedule", "v1"), store.versions("schedule"), store.stages(), store.latest("schedule")) == (None, [], [], None)
    writer = store.new_version("schedule", "v1")
    writer.put_bytes("plan.json", b"{}")
    assert (store.find("schedule", "v1"), store.versions("schedule"), store.stages()) == (None, [], [])
    with pytest.raises(StoreError, match="schedule@v1 is not in"):
        store.publish(VersionRef(stage="schedule", version="v1"))
    writer.commit(producer=producer())
    assert (store.stages(), store.versions("schedule")) == (["schedule"], [writer.ref])


def test_a_version_that_is_removed_is_as_if_it_had_never_been(store: Store) -> None:
    kept, gone = commit(store, "checkpoint", "c1").ref, commit(store, "checkpoint", "c2").ref
    store.remove(gone)
    store.remove(gone)
    assert (store.versions("checkpoint"), store.find("checkpoint", "c2")) == ([kept], None)
    assert not [info for info in store.backend.objects(store.pipeline) if "/c2/" in info.key]
    assert store.verify() == [] and store.read(kept, Note).text == "hello"
    assert commit(store, "checkpoint", "c2", text="again").summary == {"text": "again"}


def test_the_first_commit_of_a_version_stands(store: Store) -> None:
    first = commit(store, "schedule", "v1", text="first")
    again = commit(store, "schedule", "v1", text="second")
    assert again == first
    assert store.read(first.ref, Note).text == "first"
    assert store.verify() == []


def test_a_half_written_attempt_does_not_disturb_the_next_one(store: Store) -> None:
    store.new_version("schedule", "v1").put_document(Note(text="died here"))
    manifest = commit(store, "schedule", "v1", text="second attempt")
    assert manifest.files["note.json"].key != "note.json"
    assert store.read(manifest.ref, Note).text == "second attempt"
    assert store.verify(manifest.ref) == []


def test_of_many_writers_of_one_version_one_wins_and_all_learn_which(place: Place) -> None:
    def attempt(number: int) -> Manifest:
        return commit(place.open(), "schedule", "v1", text=f"writer {number}")

    with ThreadPoolExecutor(16) as pool:
        manifests = list(pool.map(attempt, range(16)))
    store = place.open()
    assert all(manifest == manifests[0] for manifest in manifests)
    assert store.read(manifests[0].ref, Note).text == manifests[0].summary["text"]
    assert store.verify() == []


def test_files_go_in_and_out_without_being_held_in_memory(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "weights.bin"
    source.write_bytes(bytes(range(256)) * 20_000)
    writer = store.new_version("train", "v1")
    writer.put_file("weights.bin", source)
    manifest = writer.commit(producer=producer())
    target = store.read_file(manifest.ref, "weights.bin", tmp_path / "copy.bin")
    assert target.read_bytes() == source.read_bytes()
    assert store.verify(manifest.ref) == []


def test_a_file_that_is_not_there_is_the_callers_mistake(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*absent\.bin: No such file"):
        store.new_version("train", "v1").put_file("weights.bin", tmp_path / "absent.bin")


def test_a_name_is_stored_once_and_the_manifest_is_the_stores_own(store: Store) -> None:
    writer = store.new_version("train", "v1")
    writer.put_bytes("a.json", b"1")
    with pytest.raises(InputError, match="has been stored in this version already"):
        writer.put_bytes("a.json", b"2")
    with pytest.raises(InputError, match=r"'manifest\.json' is a name the store uses itself"):
        writer.put_bytes("manifest.json", b"{}")


def test_the_error_for_an_absent_file_names_those_there_are(store: Store) -> None:
    manifest = commit(store, "schedule", "v1")
    with pytest.raises(StoreError, match=r"schedule@v1 has no file 'plan\.json'") as caught:
        store.read_bytes(manifest.ref, "plan.json")
    assert "note.json" in caught.value.fix


def test_the_latest_version_is_the_one_published_last(place: Place) -> None:
    store = place.open()
    a, b = commit(store, "schedule", "a").ref, commit(store, "schedule", "b").ref
    assert store.latest("schedule") is None
    assert [store.publish(a), store.publish(a), store.publish(b), store.publish(a)] == [1, 1, 2, 3]
    assert place.open().latest("schedule") == a
    assert store.history("schedule") == [a, b, a]
    assert place.raw_get("hetrl/schedule/history/2.json").startswith(b"{")


def test_the_tenth_publication_is_later_than_the_ninth(store: Store) -> None:
    refs = [commit(store, "schedule", f"v{number}").ref for number in range(11)]
    for ref in refs:
        store.publish(ref)
    assert store.latest("schedule") == refs[-1]
    assert store.history("schedule") == refs


def test_publications_at_once_are_all_kept(place: Place) -> None:
    refs = [commit(place.open(), "schedule", f"v{number}").ref for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda ref: place.open().publish(ref), refs))
    assert sorted(numbers) == list(range(1, 9))
    assert sorted(place.open().history("schedule"), key=str) == refs


def test_lineage_follows_inputs_and_marks_what_is_gone(place: Place) -> None:
    store = place.open()
    profile = commit(store, "profile", "p1").ref
    plan = commit(store, "schedule", "s1", inputs={"topology": profile}).ref
    train = commit(store, "train", "t1", inputs={"plan": plan, "topology": profile}).ref
    tree = store.lineage(train)
    assert tree.inputs["plan"].inputs["topology"].ref == profile
    assert tree.inputs["topology"].manifest == store.manifest(profile)
    place.raw_delete("hetrl/profile/p1/manifest.json")
    gone = place.open().lineage(train).inputs["plan"].inputs["topology"]
    assert gone.manifest is None
    assert "profile@p1 is not in" in gone.problem


def test_pipelines_do_not_see_each_other(place: Place) -> None:
    commit(place.open("one"), "schedule", "v1")
    assert place.open("two").stages() == []
    assert place.open("two").find("schedule", "v1") is None


def test_objects_lie_where_a_person_looks_for_them(place: Place) -> None:
    store = place.open()
    store.publish(commit(store, "schedule", "v1").ref)
    store.acquire_lease("local", holder="me", run_id="r1", ttl_s=60).release()
    keys = [info.key for info in store.backend.objects("")]
    assert keys == ["hetrl/leases/local/1.json", "hetrl/leases/local/2.json", "hetrl/schedule/history/1.json",
                    "hetrl/schedule/v1/manifest.json", "hetrl/schedule/v1/note.json"]
