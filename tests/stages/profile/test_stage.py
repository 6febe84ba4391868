"""``python -m stages.profile`` from request to published version, on a store of files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from artifacts.invocation import Outcome, Progress, parse_event
from artifacts.manifest import VersionRef
from artifacts.store import open_store
from artifacts.topology import Topology
from stages.profile.draft import Draft
from stages.profile.local import profile_local
from stages.profile.settle import settle
from tests.stages.profile.bench import Bench
from tests.stages.profile.fleets import PAIR

MOST_LOAD_A_CORE = 6


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def inventory(text: str) -> dict[str, Any]:
    return {"cluster": {"kind": "inventory", "text": text, "where": "pair.yaml"}}


def skip_where_overloaded() -> None:
    if os.getloadavg()[0] > MOST_LOAD_A_CORE * (os.cpu_count() or 1):
        pytest.skip(f"a load of {os.getloadavg()[0]:.0f} is no longer an unchanged machine")


@contextmanager
def unless_overloaded() -> Iterator[None]:
    """Rates that changed while others overloaded the machine say nothing."""
    try:
        yield
    except AssertionError:
        skip_where_overloaded()
        raise


@pytest.mark.quiet
def test_this_machine_end_to_end(bench: Bench) -> None:
    status, outcome, events = bench.run("v1", {"cluster": {"kind": "local"}, "seconds": 1.0, "machine": "here", "devices": 2})
    assert status == 0, outcome
    topology = bench.topology("v1")
    assert outcome.summary["machines"] == 1 and outcome.summary["devices"] == 2 == len(topology.devices)
    assert topology.fingerprint.startswith(outcome.summary["fingerprint"])
    assert (outcome.summary["changed"], outcome.summary["changes"], outcome.summary["previous"]) == (False, [], "")
    assert topology.measured_at is not None and topology.cluster.kind == "local" and topology.machines[0].name == "here"
    progress = [e for e in events if isinstance(e, Progress)]
    assert len(progress) >= 3 and progress[-1].done == progress[-1].total

    bench.run("v2", {"seconds": 1.0, "machine": "here", "devices": 1}, ("v1",))
    status, outcome, _ = bench.run("v3", {"seconds": 1.0, "machine": "here", "devices": 2}, ("v2", "v1"))
    with unless_overloaded():
        assert bench.topology("v3").fingerprint == topology.fingerprint
    assert bench.topology("v2").fingerprint != topology.fingerprint
    assert outcome.summary["changed"] is True and outcome.summary["previous"] == "v2"
    assert any("device cpu-1" in c and "is new in machine here" in c for c in outcome.summary["changes"])


def test_an_inventory_end_to_end(bench: Bench) -> None:
    status, outcome, _ = bench.run("v1", inventory(PAIR))
    assert status == 0 and outcome.summary["devices"] == 6
    assert any("compute rate assumed" in note for note in outcome.summary["notes"])
    status, outcome, _ = bench.run("v2", inventory(PAIR), ("v1",))
    assert outcome.summary["changed"] is False and outcome.summary["previous"] == "v1"
    status, outcome, _ = bench.run("v3", inventory(PAIR.replace("count: 4", "count: 3")), ("v2", "v1"))
    assert outcome.summary["changed"] is True
    assert outcome.summary["changes"] == ["device b.gpu-3 (NVIDIA L4, 22.5 GiB) is gone from machine b"]
    page = open_store(bench.store_url, pipeline="p").read_bytes(VersionRef(stage="profile", version="v3"), "topology.md").decode()
    assert "## Since v2" in page and "device b.gpu-3" in page and "| between east and west | 2 | 30.0 ms | 250.0 MB/s | assumed |" in page


def test_a_published_scenario_end_to_end(bench: Bench) -> None:
    status, outcome, _ = bench.run("v1", {"cluster": {"kind": "scenario", "name": "multi-region-hybrid"}})
    assert status == 0 and outcome.summary["devices"] == 64
    assert bench.topology("v1").cluster.reconstructed
    assert outcome.summary["notes"][0].startswith("reconstructed from the HetRL paper's scenario multi-region-hybrid")


def test_another_clusters_history_is_not_compared(bench: Bench) -> None:
    bench.run("v1", inventory(PAIR))
    _, outcome, _ = bench.run("v2", inventory(PAIR.replace("name: pair", "name: other")), ("v1",))
    assert (outcome.summary["changed"], outcome.summary["previous"]) == (False, "")


@pytest.mark.parametrize(("parameters", "message", "fix"), [
    (inventory(PAIR.replace("gpu: L4", "gpu: L5")), "pair.yaml: machines.1 (b): no GPU 'L5' in the catalogue", "nearest: L4-24GB"),
    ({"cluster": {"kind": "ray", "address": "nowhere"}}, "'nowhere' is not the address of a Ray cluster", "give host:port"),
    ({"cluster": {"kind": "moon"}}, "parameters of stage profile: cluster", ""),
    ({"cluster": {"kind": "local"}, "second": 1}, "second: unknown key; known here: cluster, devices, machine, seconds, strict", ""),
    ({"seconds": 1e9}, "seconds: Input should be less than or equal to 600", ""),
])
def test_wrong_requests_are_one_line_and_publish_nothing(bench: Bench, parameters: dict[str, Any], message: str, fix: str) -> None:
    status, outcome, _ = bench.run("v1", parameters)
    assert (status, outcome.kind) == (2, "InputError")
    assert message in outcome.message and fix in outcome.fix
    assert not list((bench.folder / "store").rglob("manifest.json"))


def test_stopping_it_leaves_no_probe_and_no_version(bench: Bench) -> None:
    process = subprocess.Popen(bench.command("v1", {"seconds": 300.0}), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    events = (parse_event(line) for line in process.stdout)
    assert any(isinstance(e, Progress) and e.done == 1 for e in events)
    children = _children(process.pid)
    assert children, "the device probes run"
    process.send_signal(signal.SIGTERM)
    last = list(events)[-1]
    assert process.wait(timeout=300) == 143
    assert isinstance(last, Outcome) and last.status == "error" and "nothing was published" in last.message
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert not list((bench.folder / "store").rglob("manifest.json"))


def _children(pid: int) -> list[psutil.Process]:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        found = psutil.Process(pid).children()
        if len(found) >= 2 or (found and (psutil.cpu_count() or 1) == 1):
            return found
        time.sleep(0.05)
    return []


def _profile(devices: int | None, seconds: float) -> Draft:
    return profile_local(devices=devices, seconds=seconds, machine="", strict=False, report=lambda *_: None)


@pytest.mark.quiet
def test_twenty_profiles_of_an_unchanged_machine_have_one_fingerprint_and_another_device_another() -> None:
    skip_where_overloaded()
    profiles: list[Topology] = []
    for _ in range(20):
        _, topology = settle(lambda: _profile(1, 0.5), profiles)
        profiles.insert(0, topology)
    with unless_overloaded():
        assert len({p.fingerprint for p in profiles}) == 1, json.dumps([p.basis for p in profiles], indent=1)
    assert len({p.devices[0].achieved_flops_per_s.value for p in profiles}) == 20, "each was measured anew"
    _, more = settle(lambda: _profile(2, 0.5), profiles)
    assert more.fingerprint not in {p.fingerprint for p in profiles}


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """One more program that never rests."""
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    hog.kill()
    hog.wait()


@pytest.mark.quiet
@pytest.mark.usefixtures("busy_machine")
def test_five_profiles_of_an_unchanged_busy_machine_have_one_fingerprint() -> None:
    skip_where_overloaded()
    profiles: list[Topology] = []
    for _ in range(5):
        _, topology = settle(lambda: _profile(None, 0.8), profiles)
        profiles.insert(0, topology)
    with unless_overloaded():
        assert len({p.fingerprint for p in profiles}) == 1, json.dumps([p.basis for p in profiles], indent=1)
    measured = {p.devices[0].achieved_flops_per_s.value for p in profiles}
    assert len(measured) == 5, "each was measured anew"
