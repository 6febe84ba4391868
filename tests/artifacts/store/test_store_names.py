"""Names and addresses come from outside: whatever they are, they stay in their folder or are refused in one line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from artifacts.errors import HetrlError, InputError, StoreError
from artifacts.manifest import Manifest
from artifacts.store import open_store
from artifacts.store.url import parse_url
from tests.artifacts.store.store_places import producer

NASTY = (st.text(st.sampled_from("ab./\\\0\n %~:é-_"), max_size=12) | st.text(max_size=20)
         | st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True))


@settings(max_examples=150, deadline=None)
@given(NASTY, NASTY, NASTY)
@example("..", "v", "f")
@example("leases", "lab", "1.json")
@example("schedule", "history", "1.json")
@example("s", "v" * 128, "f")
@example("s", "v", "manifest.json")
@example("s", "v", "f" * 127)
def test_any_names_stay_in_their_folder_or_are_refused(stage: str, version: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as parent:
        root = Path(parent, "deep", "store")
        store = open_store(root.as_uri())
        try:
            for _ in range(2):  # the second attempt meets the first one's file
                writer = store.new_version(stage, version)
                writer.put_bytes(name, b"data")
            manifest: Manifest = writer.commit(producer=producer())
        except InputError as error:
            assert "\n" not in error.line
            stored = set()
        else:
            assert store.read_bytes(manifest.ref, name) == b"data"
            assert store.verify() == [] and store.versions(stage) == [manifest.ref]
            stored = {path for path in root.joinpath("hetrl", stage, version).iterdir()}
            assert len(stored) == 3
        files = {path for path in Path(parent).rglob("*") if path.is_file()}
        assert files == stored


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40) | st.text(st.sampled_from("s3:file/@.%a?#\\[]"), max_size=24))
@example("s3://[::1")
@example("file://[")
@example("s3://bucket/../x")
@example("file:///a%00b")
def test_any_address_is_understood_or_refused_in_one_line(text: str) -> None:
    try:
        address = parse_url(text)
    except InputError as error:
        assert "\n" not in error.line
    else:
        assert parse_url(str(address)) == address


@pytest.mark.parametrize(("text", "told"), [
    ("s3://AKIA:verysecret@bucket/x", "holds credentials"),
    ("/just/a/folder", "not an address"),
    ("http://host/bucket", "not an address"),
    ("file://relative/x", "not absolute"),
    ("s3://", "not a bucket's name"),
    ("s3://UPPER", "not a bucket's name"),
    ("s3://bucket/../other", "the prefix has a part"),
    ("s3://bucket/a//b", "the prefix has a part"),
    ("s3://bucket/a?versionId=1", "nothing may follow"),
])
def test_wrong_addresses_say_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        open_store(text)
    assert "verysecret" not in caught.value.line and caught.value.fix


def test_good_addresses() -> None:
    assert str(parse_url("s3://my.dotted.bucket/a/b/")) == "s3://my.dotted.bucket/a/b"
    assert parse_url("file:///tmp/with%20space").root == "/tmp/with space"
    assert parse_url("file://localhost/tmp/x").root == "/tmp/x"


@pytest.mark.parametrize("pipeline", ["", "..", "a/b", ".tmp", "x" * 128])
def test_a_pipeline_needs_a_name(pipeline: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pipeline: "):
        open_store(tmp_path.as_uri(), pipeline=pipeline)


def test_every_error_of_the_store_is_of_the_family() -> None:
    assert issubclass(StoreError, HetrlError) and issubclass(InputError, HetrlError)
