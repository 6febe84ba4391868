"""Runs that are killed, run out of disk, race each other or meet a clock that jumps: what the user sees, and that nothing is lost."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from artifacts.errors import ClusterBusy
from artifacts.manifest import VersionRef
from artifacts.store import leases, open_store
from artifacts.store import store as store_module
from flows.graph import ORDER
from tests.artifacts.store.store_places import producer

ROOT = Path(__file__).parents[3]
HETRL = Path(sys.executable).parent / "hetrl"
JOB = ROOT / "infra/jobs/qwen3-4b-grpo.yaml"
PAIR = ROOT / "infra/clusters/workstation-pair.yaml"
RUN = ("run", "--job", JOB, "--cluster", PAIR, "--set", "iterations=2", "--budget", "200", "--json")


def start(folder: Path, *arguments: object, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HETRL_"))}
    return subprocess.Popen([str(HETRL), *map(str, arguments)], cwd=folder, env=clean | {"COLUMNS": "300"}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)


def kill_stage(run: subprocess.Popen[str], stage: str) -> None:
    """SIGKILL to the process of ``stage`` as soon as it is seen."""
    parent = psutil.Process(run.pid)
    while run.poll() is None:
        for child in parent.children(recursive=True):
            with suppress(psutil.Error):
                if f"stages.{stage}" in child.cmdline():
                    child.kill()
                    return
        time.sleep(0.01)
    raise AssertionError(f"stage {stage} was not seen: {run.communicate()}")


def test_a_stage_killed_at_each_step_and_the_run_goes_on_from_there(tmp_path: Path) -> None:
    for number, stage in enumerate(ORDER):
        run = start(tmp_path, *RUN)
        kill_stage(run, stage)
        _, told = run.communicate()
        assert run.returncode == 9, told
        assert f"hetrl: StageCrashed: stage {stage} " in told and "Traceback" not in told
        store = open_store((tmp_path / ".hetrl/store").as_uri())
        assert {s for s in ORDER if store.versions(s)} == set(ORDER[:number]), "what was finished is kept, what was killed is not there"
        assert store.verify() == []
    run = start(tmp_path, *RUN)
    out, told = run.communicate()
    assert run.returncode == 0, told
    made = json.loads(out.splitlines()[-1])
    assert [made[stage]["hit"] for stage in ORDER] == [True] * 4 + [False]


def test_a_full_disk(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB, as on a disk with no more room: the topology of 64 GPUs is larger."""
    run = start(tmp_path, "run", "--job", JOB, "--cluster", ROOT / "infra/clusters/testbed-64.yaml", "--until", "profile",
                limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
    _, told = run.communicate()
    assert run.returncode == 6, told
    assert "hetrl: StoreError: cannot write " in told and "File too large" in told and "Traceback" not in told
    store = open_store((tmp_path / ".hetrl/store").as_uri())
    assert store.versions("profile") == [] and store.verify() == []
    again = start(tmp_path, "run", "--job", JOB, "--cluster", ROOT / "infra/clusters/testbed-64.yaml", "--until", "profile")
    again.communicate()
    assert again.returncode == 0 and len(store.versions("profile")) == 1


def test_two_runs_at_once_make_one_version(tmp_path: Path) -> None:
    runs = [start(tmp_path, *RUN, "--until", "profile") for _ in range(2)]
    made = [json.loads(run.communicate()[0].splitlines()[-1]) for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert made[0]["profile"]["version"] == made[1]["profile"]["version"]
    store = open_store((tmp_path / ".hetrl/store").as_uri())
    assert len(store.versions("profile")) == 1 and store.verify() == []


def test_a_run_that_is_ended_stops_its_stage_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    run = start(tmp_path, *RUN)
    parent, seen = psutil.Process(run.pid), []
    while not seen and run.poll() is None:
        seen = [child for child in parent.children(recursive=True) if "stages.profile" in " ".join(child.cmdline())]
    run.send_signal(signal.SIGTERM)
    _, told = run.communicate()
    assert run.returncode == 130 and "hetrl: stopped; what was finished is in the store" in told
    assert seen and not [child for child in seen if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert open_store((tmp_path / ".hetrl/store").as_uri()).verify() == []


def test_a_killed_command_takes_its_stage_with_it(tmp_path: Path) -> None:
    """SIGKILL: the command itself can end nothing any more. How the stage learns of it is tested in tests/stages/test_contract.py."""
    start(tmp_path, "profile", "--cluster", PAIR, "--out", "out").communicate()
    with start(tmp_path, "schedule", JOB, "--topology", "out/topology.json", "--seconds", "3600", "--out", "out") as command:
        assert command.stderr is not None
        assert any("best so far" in line for line in command.stderr)
        left = psutil.Process(command.pid).children(recursive=True)
        [stage] = [child for child in left if "stages.schedule" in child.cmdline()]
        assert stage.environ()["HETRL_STAGE_LAUNCHER"] == str(command.pid)
        command.kill()
    _, alive = psutil.wait_procs(left, timeout=120)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    assert not (tmp_path / "out/plan.json").exists()


def clock(monkeypatch: pytest.MonkeyPatch, module: object) -> SimpleNamespace:
    """The clock that ``module`` reads, with a hand to turn it."""
    hand = SimpleNamespace(ahead=timedelta(0))
    monkeypatch.setattr(module, "datetime", SimpleNamespace(now=lambda zone: datetime.now(zone) + hand.ahead))
    return hand


def test_a_clock_that_jumps_ahead_never_gives_a_cluster_to_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = clock(monkeypatch, leases)
    store = open_store(tmp_path.as_uri())
    first = store.acquire_lease("lab", holder="anna", run_id="r1", ttl_s=60)
    hand.ahead = timedelta(hours=1)
    second = store.acquire_lease("lab", holder="ben", run_id="r2", ttl_s=60)
    hand.ahead = timedelta(0)
    with pytest.raises(ClusterBusy, match=r"cluster lab is held by ben \(run r2\) until"):
        first.renew(60)
    assert first.release() is False and second.release() is True


def test_a_clock_that_jumps_back_does_not_reorder_what_was_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = clock(monkeypatch, store_module)
    store = open_store(tmp_path.as_uri())
    for version, hours in (("v1", 0), ("v2", -5), ("v3", -10)):
        hand.ahead = timedelta(hours=hours)
        writer = store.new_version("schedule", version)
        writer.put_bytes("a.json", b"{}")
        store.publish(writer.commit(producer=producer()).ref)
    assert store.latest("schedule") == VersionRef(stage="schedule", version="v3")
    assert [ref.version for ref in store.history("schedule")] == ["v1", "v2", "v3"]
