"""``hetrl artifacts`` on a real store: what a person sees, what a program reads, how failures end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from artifacts.errors import HetrlError, InputError, StoreError
from artifacts.manifest import LeaseRecord, Producer
from artifacts.registry import DOCUMENTS
from artifacts.store import Store, StoreSettings, open_store
from flows.cli.artifacts import app


def producer() -> Producer:
    now = datetime.now(UTC)
    return Producer(hetrl="0.1.0", code_digest="c0de", host="n1", run_id="run-1", started_at=now, finished_at=now)


def record(holder: str, epoch: int = 1) -> LeaseRecord:
    """Any small document will do."""
    now = datetime(2025, 1, 1, tzinfo=UTC)
    return LeaseRecord(cluster="lab", epoch=epoch, holder=holder, run_id="[bold]r1", taken_at=now, expires_at=now)


def fill(store: Store) -> None:
    """profile@aaaa1111 ← schedule@bbbb1111 (latest), schedule@bbbb2222; the second was never published."""
    writer = store.new_version("profile", "aaaa1111")
    writer.put_bytes("topology.json", b'{"devices": 2}')
    profile = writer.commit(producer=producer(), summary={"devices": 2}).ref
    store.publish(profile)
    for version, holder in (("bbbb1111", "anna"), ("bbbb2222", "ben")):
        writer = store.new_version("schedule", version)
        writer.put_document(record(holder))
        writer.put_bytes("log.jsonl", b'{"step": 1}\n{"step": 2}\n')
        writer.put_bytes("picture.png", b"\x89PNG\xff")
        ref = writer.commit(producer=producer(), inputs={"topology": profile}, parameters={"seed": 0}, summary={"time_s": 1.5}).ref
        if holder == "anna":
            store.publish(ref)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HETRL_STORE", (tmp_path / "store").as_uri())
    fill(open_store((tmp_path / "store").as_uri()))
    return tmp_path / "store"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    if result.exception is not None:
        raise result.exception
    return result.output


def last_json(*arguments: str) -> dict:
    return json.loads(run(*arguments, "--json").splitlines()[-1])


def test_ls_shows_versions_and_marks_the_latest(folder: Path) -> None:
    lines = run("ls").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["profile", "aaaa1111"], ["schedule", "bbbb1111"], ["schedule", "bbbb2222"]]
    assert ["latest" in line for line in lines[1:]] == [True, True, False]
    assert "time_s 1.5" in lines[2]
    versions = last_json("ls", "schedule")["versions"]
    assert [(one["version"], one["latest"]) for one in versions] == [("bbbb1111", True), ("bbbb2222", False)]


def test_ls_of_an_empty_store_says_so(tmp_path: Path) -> None:
    assert "nothing in file://" in run("ls", "--store", tmp_path.as_uri())


def test_show_prints_the_manifest_or_a_file(folder: Path, tmp_path: Path) -> None:
    text = run("show", "schedule")
    assert "schedule@bbbb1111" in text and "topology of profile@aaaa1111" in text and "lease.json" in text and "seed = 0" in text
    assert json.loads(run("show", "schedule@bbbb2", "--file", "lease"))["holder"] == "ben"
    assert last_json("show", "schedule@bbbb2", "--file", "lease.json")["content"]["run_id"] == "[bold]r1"
    assert last_json("show", "schedule", "--file", "log")["content"] == [{"step": 1}, {"step": 2}]
    run("show", "schedule", "--file", "picture", "--out", str(tmp_path / "p.png"))
    assert (tmp_path / "p.png").read_bytes() == b"\x89PNG\xff"
    (tmp_path / "own.json").write_text('{"a": 1}')
    assert json.loads(run("show", str(tmp_path / "own.json"))) == {"a": 1}


@pytest.mark.parametrize(("arguments", "told", "fix"), [
    (["show", "deploy"], "no version of 'deploy'", "profile, schedule"),
    (["show", "schedule@bbbb"], "fits 2 versions", "bbbb1111, bbbb2222"),
    (["show", "schedule@cc"], "schedule@cc is not in", "schedule@bbbb2222"),
    (["show", "../../etc"], r"cannot read \.\./\.\./etc", "check the path"),
    (["show", "..@x"], "stage: '..' is not a name", ""),
    (["show", "schedule", "--file", "plan"], "has no file 'plan'", "lease.json, log.jsonl"),
    (["show", "schedule", "--file", "picture"], "is not text", "--out"),
    (["diff", "schedule", "schedule@bbbb2", "--file", "picture"], "is not JSON", ".json"),
    (["schema", "nonsense"], "no document 'nonsense'", "topology"),
    (["sweep", "--older-than", "soon"], "not a length of time", "24h"),
    (["ls", "--store", "nowhere"], "not an address", "file:///"),
    (["ls", "--pipeline", "a/b"], "pipeline: 'a/b' is not a name", ""),
])
def test_what_cannot_be_understood_is_one_line_with_a_mend(folder: Path, arguments: list[str], told: str, fix: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        run(*arguments)
    assert fix in caught.value.fix


def test_lineage_is_a_tree(folder: Path) -> None:
    text = run("lineage", "schedule@bbbb2222")
    assert text.splitlines()[0].startswith("schedule@bbbb2222") and "└── topology: profile@aaaa1111" in text
    tree = last_json("lineage", "schedule")
    assert tree["inputs"]["topology"] == {"ref": "profile@aaaa1111", "problem": "", "inputs": {}}


def test_diff_shows_the_fields_that_differ(folder: Path, tmp_path: Path) -> None:
    text = run("diff", "schedule@bbbb1", "schedule@bbbb2")
    assert [line.split() for line in text.splitlines()[1:]] == [["lease.json:holder", '"anna"', '"ben"']]
    assert last_json("diff", "schedule@bbbb1", "schedule@bbbb2", "--file", "lease") == {
        "equal": False, "changed": [{"field": "holder", "before": '"anna"', "after": '"ben"'}]}
    assert last_json("diff", "schedule", "schedule")["equal"] is True
    (tmp_path / "a.json").write_text('{"x": [1, {"y": null}], "same": 1}')
    (tmp_path / "b.json").write_text('{"x": [1, {"y": 2}, 3], "same": 1}')
    changed = last_json("diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"))["changed"]
    assert [tuple(change.values()) for change in changed] == [("x[1].y", "null", "2"), ("x[2]", None, "3")]


def test_verify_is_content_with_a_whole_store_and_names_damage(folder: Path) -> None:
    assert "3 versions read, 0 faults" in run("verify")
    damaged = folder / "hetrl/schedule/bbbb2222/log.jsonl"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert last_json("verify", "schedule@bbbb1")["ok"] is True
    result = CliRunner().invoke(app, ["verify", "--json"])
    assert isinstance(result.exception, StoreError) and result.exception.exit_status == 6
    report = json.loads(result.stdout.splitlines()[-1])
    assert [(one["fault"], one["key"]) for one in report["findings"]] == [("truncated", "hetrl/schedule/bbbb2222/log.jsonl")]


@pytest.mark.parametrize("artifact", sorted(DOCUMENTS))
def test_every_document_has_a_schema(artifact: str) -> None:
    schema = json.loads(run("schema", artifact))
    assert schema["type"] == "object" and "schema_version" in schema["properties"]


def test_sweep_removes_what_nobody_committed(folder: Path) -> None:
    open_store(folder.as_uri()).new_version("train", "half").put_bytes("a.json", b"{}")
    assert last_json("sweep") == {"removed": []}
    assert last_json("sweep", "--older-than", "0s") == {"removed": ["hetrl/train/half/a.json"]}
    assert "0 faults" in run("verify")


def test_the_same_commands_on_an_s3_store(s3_server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    fill(open_store("s3://cli-test/x", settings=StoreSettings.from_env()))
    arguments = ["--store", "s3://cli-test/x"]
    assert [one["version"] for one in last_json("ls", *arguments)["versions"]] == ["aaaa1111", "bbbb1111", "bbbb2222"]
    assert last_json("verify", *arguments)["ok"] is True
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    with pytest.raises(StoreError, match="the server refuses the secret") as caught:
        run("ls", *arguments)
    assert "planted-secret" not in caught.value.line


def test_the_program_ends_with_the_errors_status_and_one_line(folder: Path) -> None:
    (folder / "hetrl/profile/aaaa1111/manifest.json").write_text("{}")
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "flows.cli.main", "artifacts", "verify", "--store", folder.as_uri()], cwd=root,
                          env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 6
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith("hetrl: StoreError: 1 objects of file://") and "profile/aaaa1111/manifest.json" in line
    assert issubclass(StoreError, HetrlError)
