"""A sweep takes what nobody will ever commit, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.errors import StoreError
from artifacts.store import Store, StoreSettings
from tests.artifacts.store.store_places import Place, own_url, producer


def test_a_sweep_takes_uncommitted_versions_and_leaves_committed_ones(store: Store) -> None:
    done = store.new_version("schedule", "done")
    done.put_bytes("plan.json", b"{}")
    store.publish(done.commit(producer=producer()).ref)
    store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=60)
    kept = [info.key for info in store.backend.objects("")]
    for name in ("a.json", "b.json"):
        store.new_version("schedule", "half").put_bytes(name, b"{}")
    assert store.sweep(0) == ["hetrl/schedule/half/a.json", "hetrl/schedule/half/b.json"]
    assert [info.key for info in store.backend.objects("")] == kept
    assert store.verify() == [] and store.versions("schedule") == [done.ref]
    assert store.sweep(0) == []


def test_what_is_younger_than_the_bound_stays(store: Store) -> None:
    store.new_version("schedule", "running").put_bytes("a.json", b"{}")
    assert store.sweep(3600) == []
    assert len(store.backend.objects("")) == 1


def test_files_of_an_attempt_that_lost_are_swept_from_the_winners_folder(store: Store) -> None:
    dead = store.new_version("schedule", "v1")
    dead.put_bytes("plan.json", b"died")
    winner = store.new_version("schedule", "v1")
    entry = winner.put_bytes("plan.json", b"won")
    ref = winner.commit(producer=producer()).ref
    assert store.sweep(0) == ["hetrl/schedule/v1/plan.json"]
    assert store.read_bytes(ref, "plan.json") == b"won" and entry.key != "plan.json"
    assert store.verify() == []


def test_a_version_with_a_damaged_manifest_is_left_for_a_person(store: Store, place: Place) -> None:
    writer = store.new_version("schedule", "v1")
    writer.put_bytes("plan.json", b"{}")
    writer.commit(producer=producer())
    place.raw_put("hetrl/schedule/v1/manifest.json", b"{}")
    assert store.sweep(0) == []


def test_an_attempt_whose_files_were_swept_does_not_commit(store: Store) -> None:
    slow = store.new_version("schedule", "v1")
    slow.put_bytes("plan.json", b"{}")
    store.sweep(0)
    with pytest.raises(StoreError, match=r"plan\.json \(plan\.json\) is gone before the commit"):
        slow.commit(producer=producer())
    assert store.find("schedule", "v1") is None


def test_temporary_files_of_killed_writers_go_too(tmp_path: Path) -> None:
    store = Place((tmp_path / "store").as_uri()).open()
    store.new_version("schedule", "v1").put_bytes("plan.json", b"{}")
    (tmp_path / "store/.tmp/123-abc").write_bytes(b"half")
    assert store.sweep(3600) == []
    assert store.sweep(0) == [".tmp/123-abc", "hetrl/schedule/v1/plan.json"]
    assert not (tmp_path / "store/hetrl").exists()


def test_a_large_file_goes_in_parts_and_an_unfinished_upload_is_swept(s3_server, tmp_path: Path) -> None:
    env = s3_server.environment()
    plain = StoreSettings.from_env(env)
    settings = StoreSettings(**{**vars(plain), "multipart_above_bytes": 1 << 20})
    place = Place(own_url(), settings)
    store = place.open()
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 8192 + b"end")
    writer = store.new_version("train", "v1")
    entry = writer.put_file("weights.bin", tmp_path / "weights")
    manifest = writer.commit(producer=producer())
    assert entry.key.startswith("weights.try-") and entry.key.endswith(".bin")
    assert store.read_bytes(manifest.ref, "weights.bin") == (tmp_path / "weights").read_bytes()
    client = place._client()
    client.create_multipart_upload(Bucket=place._bucket, Key=place._full("hetrl/train/v2/weights.try-1.bin"))
    assert store.sweep(3600) == []
    assert store.sweep(0) == ["hetrl/train/v2/weights.try-1.bin (unfinished upload)"]
    assert store.verify() == []
