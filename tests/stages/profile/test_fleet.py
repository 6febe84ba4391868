"""A live Ray cluster profiled for real, and what the topology says of machines that hang, vanish or sum wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from artifacts.errors import HetrlError, RunnerUnavailable, StageTimeout
from artifacts.topology import Topology
from stages.cluster.live import machine_nodes
from stages.profile.basis import anchored
from stages.profile.change import describe_change
from stages.profile.fleet import RaySource, draft_ray, profile_ray
from stages.profile.fleet import profile as fleet_profile
from stages.profile.fleet.profile import undeclared
from tests.stages.profile.bench import Bench
from tests.stages.profile.ray_fleet import RayFleet, ray_fleet

pytestmark = pytest.mark.engine
ROUND = [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")]


def test_a_node_that_declares_no_devices_is_told_the_options_it_is_started_with() -> None:
    assert undeclared("vm", ["vm.cpu-0", "vm.cpu-1"]).endswith(
        """--num-cpus 8 --num-gpus 2 --resources '{"device:vm.cpu-0": 1, "device:vm.cpu-1": 1}'""")


@pytest.fixture(scope="module")
def three() -> Iterator[RayFleet]:
    pytest.importorskip("ray")
    with ray_fleet("a", "b") as fleet:
        fleet.add("c", devices=1, labels={"ray.io/availability-region": "west", "ray.io/availability-zone": "w1"})
        yield fleet


@pytest.fixture(scope="module")
def topology(three: RayFleet) -> Topology:
    return profile_ray(three.address, name="bench", seconds=1.0)


def test_machines_are_the_nodes_and_devices_what_they_declare(three: RayFleet, topology: Topology) -> None:
    assert [m.name for m in topology.machines] == ["a", "b", "c"]
    assert [(d.id, d.machine) for d in topology.devices] == [("a-0", "a"), ("a-1", "a"), ("b-0", "b"), ("b-1", "b"), ("c-0", "c")]
    assert len({d.uuid for d in topology.devices}) == 5 and len({m.ray_node_id for m in topology.machines}) == 3
    assert [m.address for m in topology.machines] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert (topology.cluster.kind, topology.cluster.name, topology.cluster.address) == ("ray", "bench", three.address)
    assert (topology.machine("c").region, topology.machine("c").zone) == ("west", "w1")
    assert topology.unreachable == []


def test_every_device_and_every_direction_is_measured(topology: Topology) -> None:
    assert all(d.achieved_flops_per_s.provenance == "measured" and d.compute_curve for d in topology.devices)
    links = {(k.source, k.target): k for k in topology.links}
    assert set(links) == {*ROUND, ("a", "a"), ("b", "b"), ("c", "c")}
    for link in links.values():
        assert (link.probe, link.provenance) == ("ok", "measured")
        assert link.latency_s > 0 and link.bandwidth_bytes_per_s > 0


def test_the_topology_finds_its_nodes_again(three: RayFleet, topology: Topology) -> None:
    listed = [{"Alive": True, "NodeID": m.ray_node_id, "Resources": {}, "NodeManagerAddress": "-"} for m in topology.machines]
    assert set(machine_nodes(topology, listed)) == {"a", "b", "c"}


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(fleet_profile, "REACH_S", 4.0)
    with pytest.raises((RunnerUnavailable, StageTimeout)) as refusal:
        profile_ray("127.0.0.1:1")
    assert "127.0.0.1:1" in refusal.value.message and refusal.value.fix


@pytest.mark.quiet
def test_an_unchanged_cluster_keeps_its_fingerprint(three: RayFleet, topology: Topology) -> None:
    """Once here; ``tests/benchmarks/fingerprints.py`` does it twenty times. A machine shared with others may change under a profile, so
    one of three pairs has to agree."""
    changes: list[list[str]] = []
    for _ in range(3):
        before, topology = topology, profile_ray(three.address, name="bench", seconds=1.0, earlier=[topology])
        rates = [[d.achieved_flops_per_s.value for d in one.devices] for one in (before, topology)]
        assert rates[0] != rates[1], "measured anew"
        if topology.fingerprint == before.fingerprint:
            return
        changes.append(describe_change(before, topology))
    raise AssertionError(changes)


def _probes_below_this_process() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True)
            if p.status() != psutil.STATUS_ZOMBIE and any("stages.profile.probes" in word for word in p.cmdline())]


def test_through_the_stage_it_is_a_lab_with_a_name(three: RayFleet, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    status, outcome, _ = bench.run("v1", {"cluster": {"kind": "lab", "address": three.address, "name": "two-regions"}, "seconds": 0.5})
    assert status == 0, outcome
    topology = bench.topology("v1")
    assert (topology.cluster.kind, topology.cluster.name) == ("lab", "two-regions")
    assert (outcome.summary["machines"], outcome.summary["devices"], outcome.summary["unreachable"]) == (3, 5, [])


def test_nothing_is_left_behind(topology: Topology) -> None:
    assert topology.machines and _probes_below_this_process() == []


def _reasons(topology: Topology) -> dict[str, str]:
    return {u.machine: u.reason for u in topology.unreachable}


def test_a_machine_whose_probes_hang_is_left_out_and_named() -> None:
    pytest.importorskip("ray")
    with ray_fleet("a", "b", devices=1) as fleet:
        fleet.add("c", devices=1, fault="hang")
        topology = profile_ray(fleet.address, name="bench", seconds=0.5)
        assert [m.name for m in topology.machines] == ["a", "b"]
        assert "did not answer within" in _reasons(topology)["c"] and "with a, b" in _reasons(topology)["c"]
        assert {(k.source, k.target) for k in topology.links} == {("a", "a"), ("b", "b"), ("a", "b"), ("b", "a")}
        assert all(d.machine != "c" for d in topology.devices)


def test_a_machine_that_vanishes_in_the_middle_costs_only_itself() -> None:
    pytest.importorskip("ray")
    with ray_fleet("a", "b", "c", devices=1) as fleet:
        before = profile_ray(fleet.address, name="bench", seconds=0.5)
        assert [m.name for m in before.machines] == ["a", "b", "c"]
        killed = threading.Event()

        def report(done: float, total: float, message: str) -> None:
            if message.startswith("probing who") and not killed.is_set():
                fleet.kill("c")
                killed.set()

        draft = draft_ray(RaySource(fleet.address, name="bench", seconds=0.5), report=report)
        assert killed.is_set()
        assert [m.name for m in draft.machines] == ["a", "b"] and [d.id for d in draft.devices] == ["a-0", "b-0"]
        assert [u.machine for u in draft.unreachable] == ["c"] and draft.unreachable[0].reason
        assert {("a", "b"), ("b", "a")} <= {(k.source, k.target) for k in draft.links if k.probe == "ok"}
        assert any(note.startswith("c is left out: ") for note in draft.notes)
        after = anchored(draft, [before])
        assert after.fingerprint != before.fingerprint
        assert f"machine c cannot be reached ({draft.unreachable[0].reason}): 1 device left out" in describe_change(before, after)


def test_a_machine_that_sums_wrong_with_everyone_is_left_out() -> None:
    pytest.importorskip("ray")
    with ray_fleet("a", "b", devices=1) as fleet:
        fleet.add("c", devices=1, fault="wrong sum")
        topology = profile_ray(fleet.address, name="bench", seconds=0.5)
        assert [m.name for m in topology.machines] == ["a", "b"]
        assert "wrong all-reduce sum" in _reasons(topology)["c"]
        assert {k.probe for k in topology.links} == {"ok"}


def test_a_pair_that_sums_wrong_keeps_both_machines_and_must_not_be_used() -> None:
    pytest.importorskip("ray")
    with ray_fleet("a", devices=1) as fleet:
        fleet.add("b", devices=1, fault="wrong sum")
        draft = draft_ray(RaySource(fleet.address, name="bench", seconds=0.5))
        assert {(k.source, k.target): k.probe for k in draft.links} == {("a", "a"): "ok", ("b", "b"): "ok", ("a", "b"): "failed", ("b", "a"): "failed"}
        assert any(note.startswith("link a ↔ b must not be used: wrong all-reduce sum") for note in draft.notes)
        assert draft.unreachable == ()
        with pytest.raises(HetrlError, match=r"strict profile of bench: .*wrong all-reduce sum on a, b"):
            draft_ray(RaySource(fleet.address, name="bench", seconds=0.5, strict=True))


def test_a_survey_that_is_killed_leaves_what_it_had_found_and_no_probe(three: RayFleet) -> None:
    def report(done: float, total: float, message: str) -> None:
        if message.startswith("measuring bandwidths"):
            next(p for p in _probes_below_this_process() if "stages.profile.probes.fleet" in p.cmdline()).kill()

    draft = draft_ray(RaySource(three.address, name="bench", seconds=1.0), report=report)
    assert draft.notes[0] == "the survey ended early: probe fleet ended with status -9 before it answered"
    assert "sums over the network were not checked" in draft.notes
    assert len(draft.devices) == 5 and all(d.achieved_flops_per_s.provenance == "measured" for d in draft.devices)
    assert {(k.source, k.target) for k in draft.links}.isdisjoint(ROUND), "their bandwidth is unknown, and so not a number"
    until = time.monotonic() + 300
    while _probes_below_this_process() and time.monotonic() < until:
        time.sleep(0.2)
    assert _probes_below_this_process() == []
