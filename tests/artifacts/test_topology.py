"""The topology document: round trips, what it refuses, and what its fingerprint is made of."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.topology import ClusterRef, ComputePoint, Device, Link, Machine, Measured, Topology, Unreachable
from tests.artifacts.samples import NOW, device, topology

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}", fullmatch=True)
RATES = st.floats(1e-3, 1e18)
MEASURED = st.builds(Measured, value=RATES, provenance=st.sampled_from(["measured", "calibrated", "spec", "assumed"]),
                     spread=st.floats(0, 10), source=st.text(max_size=12))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    machines = draw(st.lists(st.builds(Machine, name=NAMES, zone=st.text(max_size=5), region=st.text(max_size=5),
                                       host_memory_bytes=st.integers(0, 2**45), cpus=st.integers(1, 512)),
                             min_size=1, max_size=4, unique_by=lambda m: m.name))
    names = st.sampled_from([m.name for m in machines])
    devices = draw(st.lists(st.builds(
        Device, id=NAMES, machine=names, vendor=st.sampled_from(["nvidia", "amd", "cpu"]), name=st.text(min_size=1, max_size=9),
        device_class=NAMES, uuid=st.text(min_size=1, max_size=9), memory_bytes=st.integers(0, 2**45),
        peak_flops_per_s=st.none() | MEASURED, achieved_flops_per_s=MEASURED, memory_bandwidth_bytes_per_s=MEASURED,
        compute_curve=st.lists(st.builds(ComputePoint, tokens=st.integers(1, 9), width=st.integers(1, 9), flops_per_s=RATES), max_size=2),
        dtypes=st.lists(st.sampled_from(["bf16", "fp16", "fp32"]), unique=True), price_per_hour=st.none() | st.floats(0, 100)),
        min_size=1, max_size=5, unique_by=lambda d: d.id))
    links = draw(st.lists(st.builds(Link, source=names, target=names, latency_s=st.floats(0, 10), bandwidth_bytes_per_s=RATES,
                                    provenance=st.just("measured"), probe=st.sampled_from(["ok", "failed", "not probed"])),
                          max_size=6, unique_by=lambda k: (k.source, k.target)))
    return Topology(cluster=ClusterRef(kind=draw(st.sampled_from(["local", "ray", "lab", "inventory"])), name=draw(NAMES)),
                    machines=machines, devices=devices, links=links, basis=draw(st.dictionaries(st.text(max_size=9), RATES, max_size=4)),
                    unreachable=draw(st.lists(st.builds(Unreachable, machine=NAMES, reason=st.text(max_size=9)), max_size=2)),
                    measured_at=draw(st.none() | st.just(NOW)))


def test_a_document_of_the_first_schema_is_read() -> None:
    old = json.loads(topology().to_json()) | {"schema_version": 1}
    for item in (*old["machines"], *old["devices"]):
        item.pop("allreduce_bytes_per_s", None), item.pop("to_host_bandwidth_bytes_per_s", None)
    read = Topology.parse(old, where="x")
    assert (read.schema_version, read.fingerprint) == (1, topology().fingerprint)
    assert read.machines[0].allreduce_bytes_per_s == {} and read.devices[0].to_host_bandwidth_bytes_per_s is None


@given(topologies())
@settings(max_examples=60, deadline=None)
def test_round_trip(document: Topology) -> None:
    again = Topology.from_json(document.to_json(), where="x")
    assert again == document
    assert again.fingerprint == document.fingerprint == document.identity()


@given(topologies(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_does_not_move_the_fingerprint(document: Topology, shuffle: random.Random) -> None:
    body = document.model_dump(mode="json")
    for key in ("machines", "devices", "links"):
        shuffle.shuffle(body[key])
    assert Topology.parse(body, where="x").fingerprint == document.fingerprint


def test_a_fingerprint_that_is_not_of_this_content_is_refused() -> None:
    body = topology().model_dump(mode="json")
    body["devices"].pop()
    with pytest.raises(InputError, match="fingerprint does not match the content: leave it empty to have it computed"):
        Topology.parse(body, where="t.json")
    body["fingerprint"] = ""
    assert Topology.parse(body, where="t.json").fingerprint != topology().fingerprint


@pytest.mark.parametrize(("change", "moves"), [
    ({"achieved_flops_per_s": {"value": 3e14, "provenance": "measured"}}, False),
    ({"memory_bytes": 40 * 2**30 + 2**20}, False), ({"memory_bytes": 41 * 2**30}, True), ({"uuid": "GPU-other"}, True),
    ({"device_class": "A100-slow-0"}, True), ({"dtypes": ["fp16", "fp32"]}, True), ({"price_per_hour": 2.0}, True), ({"mig_parent": "GPU-x"}, True),
])
def test_what_of_a_device_moves_the_fingerprint(change: dict[str, object], moves: bool) -> None:
    body = topology().model_dump(mode="json") | {"fingerprint": ""}
    body["devices"][0] |= change
    assert (Topology.parse(body, where="x").fingerprint != topology().fingerprint) is moves


@pytest.mark.parametrize(("key", "value", "moves"), [
    ("measured_at", None, False), ("unreachable", [{"machine": "m9", "reason": "no route"}], False), ("basis", {"A100.flops": 2.5e14}, True),
    ("cluster", {"kind": "inventory", "name": "other"}, True), ("links", [], True),
    ("machines", [{"name": "m0", "region": "r", "host_memory_bytes": 2**37, "cpus": 64}], True),
    ("machines", [{"name": "m0", "region": "r", "host_memory_bytes": 2**38, "cpus": 32}], True),
    ("machines", [{"name": "m0", "region": "r", "host_memory_bytes": 2**38, "cpus": 64, "address": "10.0.0.1", "ray_node_id": "ab"}], False),
])
def test_what_else_moves_the_fingerprint(key: str, value: object, moves: bool) -> None:
    body = topology().model_dump(mode="json") | {"fingerprint": "", key: value}
    assert (Topology.parse(body, where="x").fingerprint != topology().fingerprint) is moves


@pytest.mark.parametrize(("change", "message"), [
    (lambda b: b["devices"].append(b["devices"][0]), "two devices have one id"),
    (lambda b: b["machines"].append(b["machines"][0]), "two machines have one name"),
    (lambda b: b["devices"][0].update(machine="m7"), "device m0.0 sits in machine 'm7', which is not listed"),
    (lambda b: b["links"].append(b["links"][0]), "a link is listed twice"),
    (lambda b: b["links"][0].update(target="m7"), "names machine 'm7', which is not listed"),
    (lambda b: b["links"][0].update(bandwidth_bytes_per_s=0), "links.0.bandwidth_bytes_per_s"),
    (lambda b: b["devices"][0].update(achieved_flops_per_s={"value": 0, "provenance": "measured"}), "achieved_flops_per_s.value"),
    (lambda b: b.update(devices=[]), "devices"),
    (lambda b: b.update(machine=[]), "machine: unknown key; known here: basis, cluster, devices"),
])
def test_what_is_refused(change: object, message: str) -> None:
    body = json.loads(topology().to_json()) | {"fingerprint": ""}
    change(body)  # type: ignore[operator]
    with pytest.raises(InputError) as refusal:
        Topology.parse(body, where="t.json")
    assert message in refusal.value.line and refusal.value.line.startswith("InputError: t.json: ")


def test_lookups() -> None:
    document = topology()
    assert document.device("m0.1") == device(1)
    assert document.machine("m0").cpus == 64
    link = document.link("m0", "m0")
    assert link is not None and link.bandwidth_bytes_per_s == 2e11
    assert document.link("m0", "m9") is None
