"""Ten thousand hostile documents of every kind that is read: each is read, or refused in one clear line; nothing else happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from artifacts import base
from artifacts.base import read_json, read_text
from artifacts.errors import HetrlError, InputError, StoreError
from artifacts.job import parse_job
from artifacts.manifest import Manifest
from artifacts.plan import Plan
from artifacts.registry import DOCUMENTS
from artifacts.store.sealed import unseal
from artifacts.throughput import Throughput
from artifacts.yaml_text import read_yaml
from tests.artifacts import samples
from tests.artifacts.fuzz.readers import ROOT, readers

DOCUMENTS_OF_A_KIND = 10_000
KINDS = sorted(readers())


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "tests.artifacts.fuzz", "--documents", str(DOCUMENTS_OF_A_KIND)], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def test_every_document_that_is_read_is_fuzzed() -> None:
    assert set(DOCUMENTS) <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_document_is_read_or_refused_in_one_clear_line(found: dict[str, Any], kind: str) -> None:
    counts = found["kinds"][kind]
    assert counts["bad"] == 0, "\n\n".join(counts["examples"])
    assert counts["read"] + counts["refused"] == DOCUMENTS_OF_A_KIND
    assert counts["read"] > DOCUMENTS_OF_A_KIND // 50, "all are refused at the door: too little is tried"
    assert counts["refused"] > DOCUMENTS_OF_A_KIND // 50 or kind == "stage event", "none is hostile"


def test_reading_writes_nothing_starts_nothing_and_connects_to_nobody(found: dict[str, Any]) -> None:
    assert found["forbidden"] == []


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]\n" for before, one in zip("abcdefgh", "bcdefghi", strict=True))
CHAIN = "a: &a0 [x]\n" + "".join(f"b{i}: &a{i + 1} [*a{i}]\n" for i in range(60))


@pytest.mark.parametrize(("text", "says"), [
    (LAUGHS, "not YAML, line 6: more than 500000 values, aliases written out"),
    (CHAIN, "nested more than 50 deep"),
    ("a: &a [*a]\n", "*a is inside of itself"),
    ("a: 1\nb: 2\na: 3\n", "line 3: key 'a' is there twice"),
    ("[" * 1000, "not YAML, line 1: nested more than 50 deep"),
    ("a: " * 60 + "\n", "not YAML, line 1"),
    ("when: 2026-13-45\n", "a value is not of its type (month must be in 1..12)"),
    ("n: !!int many\n", "a value is not of its type"),
    ("n: 0x" + "f" * 6000 + "\n", "a number of 6002 digits"),
    ("n: !!python/object/apply:os.system [touch owned]\n", "could not determine a constructor for the tag"),
    ('n: "\\ud800"\n', "not YAML"),
    ("a: \x00\n", "not YAML"),
    ("x" * (17 << 20), "characters → at most"),
])
def test_yaml_that_is_a_trap(text: str, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_yaml(text, where="job.yaml")
    assert says in refusal.value.line
    assert refusal.value.line.startswith("InputError: job.yaml")


def test_anchors_that_are_no_trap_are_read() -> None:
    text = "one: &one {dp: 1, tp: 2}\ntwo: *one\nthree: {<<: *one, tp: 4}\n"
    assert read_yaml(text, where="x") == {"one": {"dp": 1, "tp": 2}, "two": {"dp": 1, "tp": 2}, "three": {"dp": 1, "tp": 4}}


@pytest.mark.parametrize(("text", "says"), [
    ('{"a": 1, "b": {"c": 1, "c": 2}}', "key 'c' is there twice"),
    ('{"a": NaN}', "NaN is not a number"),
    ('{"a": "\\ud800"}', "surrogates not allowed"),
    ("[" * 100_000, "not JSON"),
    ("9" * 5000, "not JSON"),
    (b'{"a": "\xff"}', "can't decode byte 0xff"),
    ('{"a": 1}'.encode("utf-16"), "can't decode byte"),
])
def test_json_that_is_a_trap(text: str | bytes, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_json(text, where="plan.json")
    assert says in refusal.value.line


def test_a_pair_of_escapes_is_a_character() -> None:
    assert read_json('"\\ud83d\\ude00"', where="x") == "\U0001f600"


def test_what_a_terminal_would_obey_is_spelt_out() -> None:
    error = HetrlError("a\x1b[2J\x1b]0;owned\x07\u202e\ud800 b\n\u2028c")
    assert error.line == r"HetrlError: a\x1b[2J\x1b]0;owned\x07\u202e\ud800 b c"
    with pytest.raises(InputError) as refusal:
        parse_job("name: x\n\"\\e[2Jbad\": 1\n", where="job.yaml")
    assert refusal.value.line.isprintable() and r"\x1b[2Jbad: unknown key" in refusal.value.line


def test_a_sealed_document_of_somebody_who_may_write_to_the_store() -> None:
    import hashlib

    for body in ("[1", "{" * 2000, "[]"):
        text = f'{body}, "seal": "sha256:{"0" * 64}"\n}}\n'.encode()
        sealed = text[:-68] + hashlib.sha256(text).hexdigest().encode() + text[-4:]
        with pytest.raises(StoreError):
            unseal(sealed, Manifest, where="manifest.json")


def test_a_log_holds_any_name_and_no_line_that_is_no_object() -> None:
    log = samples.throughput()
    header = log.header.model_copy(update={"engine": "line\u2028end\u0085here"})
    odd = log.model_copy(update={"header": header})
    assert Throughput.from_jsonl(odd.to_jsonl(), where="log") == odd
    for line in ("[]", "3", "[" * 5000):
        with pytest.raises(InputError, match="line 2 is not an iteration"):
            Throughput.from_jsonl(log.to_jsonl().split("\n")[0] + f"\n{line}\n", where="log")


def test_a_file_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_BYTES", 1 << 20)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_text("/dev/zero")


def test_a_path_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="embedded null byte"):
        Plan.read(str(tmp_path) + "\0")
