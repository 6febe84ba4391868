"""Fleets that are described: the shipped examples, what they say, and what a person is told when an inventory is wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from stages.profile.basis import anchored
from stages.profile.inventory import read_inventory
from tests.stages.profile.fleets import PAIR

EXAMPLES = Path(__file__).parents[3] / "infra" / "clusters"


def _example(name: str) -> str:
    return (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "machines", "classes"), [
    ("testbed-64", 8, {"HetRL-A100": 24, "HetRL-L40S": 24, "HetRL-L4": 16}),
    ("workstation-pair", 2, {"RTX-A6000-48GB": 4, "RTX-PRO-6000-96GB": 4}),
    ("fleet-1024", 128, {"H100-SXM5-80GB": 192, "A100-SXM4-80GB": 512, "L40S-48GB": 320}),
])
def test_examples_load(name: str, machines: int, classes: dict[str, int]) -> None:
    topology = anchored(read_inventory(_example(name), where=name), [])
    assert Counter(d.device_class for d in topology.devices) == classes
    assert len(topology.machines) == machines
    assert len(topology.links) == machines**2, "both directions of every pair, and one inside each machine"
    assert topology.cluster.kind == "inventory"


def test_the_fleet_spans_eight_regions_and_is_labelled_reconstructed() -> None:
    draft = read_inventory(_example("fleet-1024"), where="fleet")
    assert len({m.region for m in draft.machines}) == 8 and draft.cluster.reconstructed
    assert all(d.price_per_hour for d in draft.devices)
    links = {(k.source, k.target): k for k in draft.links}
    far = links["virginia-h100-0", "frankfurt-a100-0"]
    assert far.latency_s == pytest.approx((45.5 + 46.0) / 2 / 1e3)
    assert far.bandwidth_bytes_per_s == pytest.approx(1.2e9 / 8)


def test_the_testbed_is_that_of_the_papers_table() -> None:
    devices = {d.device_class: d for d in read_inventory(_example("testbed-64"), where="testbed").devices}
    assert {c: d.peak_flops_per_s.value for c, d in devices.items() if d.peak_flops_per_s} == {
        "HetRL-A100": 312e12, "HetRL-L40S": 366e12, "HetRL-L4": 121e12}
    assert {c: round(d.memory_bytes / 1e9 / 8) * 8 for c, d in devices.items()} == {"HetRL-A100": 40, "HetRL-L40S": 48, "HetRL-L4": 24}


def test_rates_say_where_they_come_from() -> None:
    devices = {d.device_class: d for d in read_inventory(PAIR, where="pair").devices}
    a100, l4 = devices["A100-SXM4-80GB"], devices["L4-24GB"]
    assert a100.achieved_flops_per_s.provenance == "measured" and a100.achieved_flops_per_s.value == 284e12
    assert a100.memory_bandwidth_bytes_per_s.value == 1435e9
    assert l4.achieved_flops_per_s.provenance == "assumed" and l4.achieved_flops_per_s.value == pytest.approx(0.7 * 121e12)
    assert "0.7 of the dense rate" in l4.achieved_flops_per_s.source
    assert l4.peak_flops_per_s and l4.peak_flops_per_s.provenance == "spec"
    assert l4.price_per_hour == 0.5 and a100.price_per_hour is None


def test_all_reduce_by_group_size_where_somebody_measured_it() -> None:
    machines = {m.name: m for m in read_inventory(PAIR, where="x").machines}
    assert {n: r.value for n, r in machines["a"].allreduce_bytes_per_s.items()} == {2: 193e9}, "of two A100 there is one group"
    assert machines["a"].allreduce_bytes_per_s[2].source.startswith("measured elsewhere")
    assert machines["b"].allreduce_bytes_per_s == {}, "nobody measured the L4"
    mixed = read_inventory(PAIR.replace("A100-SXM4-80GB, count: 2}", "A100-SXM4-80GB, count: 2}, {gpu: L4}"), where="x").machines
    assert mixed[0].allreduce_bytes_per_s == {}


def test_names_of_machines_and_devices() -> None:
    text = PAIR.replace("name: b,", "name: b, count: 2,") + "  same_zone: {latency_ms: 0.1, bandwidth_gbit_per_s: 25}\n"
    draft = read_inventory(text, where="x")
    assert [m.name for m in draft.machines] == ["a", "b-0", "b-1"]
    assert [d.id for d in draft.devices if d.machine == "b-1"] == [f"b-1.gpu-{i}" for i in range(4)]
    assert len({d.uuid for d in draft.devices}) == 10
    assert {d.uuid for d in draft.devices} == {d.uuid for d in read_inventory(text, where="y").devices}


def test_mixed_gpus_inside_a_machine_go_at_the_slower_kinds_link() -> None:
    text = PAIR.replace("{gpu: A100-SXM4-80GB, count: 2}", "{gpu: A100-SXM4-80GB, count: 2}, {gpu: L4}")
    draft = read_inventory(text, where="x")
    assert [(d.id, d.device_class) for d in draft.devices if d.machine == "a"] == [
        ("a.gpu-0", "A100-SXM4-80GB"), ("a.gpu-1", "A100-SXM4-80GB"), ("a.gpu-2", "L4-24GB")]
    inside = {k.source: k for k in draft.links if k.source == k.target}
    assert inside["a"].bandwidth_bytes_per_s == inside["b"].bandwidth_bytes_per_s == pytest.approx(0.63 * 32e9)


def test_the_most_particular_link_counts() -> None:
    text = """
name: edge
machines:
  - {name: core, count: 2, region: va, gpus: [{gpu: L4}], host_memory_gib: 64, cpus: 8}
  - {name: edge, region: va, zone: e, gpus: [{gpu: L4}], host_memory_gib: 64, cpus: 8}
  - {name: far, region: oh, gpus: [{gpu: L4}], host_memory_gib: 64, cpus: 8}
links:
  inside_machine: {latency_ms: 0.02, bandwidth_gbit_per_s: 80}
  same_zone: {latency_ms: 0.1, bandwidth_gbit_per_s: 100}
  same_region: {latency_ms: 0.5, bandwidth_gbit_per_s: 50}
  between_regions: {latency_ms: 99, bandwidth_gbit_per_s: 0.1}
  regions: [{between: [va, oh], latency_ms: 10, bandwidth_gbit_per_s: 5}]
  machines:
    - {between: [edge, core], latency_ms: 2, bandwidth_gbit_per_s: 1}
    - {between: [edge, core-1], latency_ms: 3, bandwidth_gbit_per_s: 2}
    - {between: [far, edge], connected: false}
"""
    links = {(k.source, k.target): (round(k.latency_s * 1e3, 6), k.bandwidth_bytes_per_s * 8 / 1e9) for k in read_inventory(text, where="x").links}
    assert links["core-0", "core-0"] == (0.02, 80)
    assert links["core-0", "core-1"] == links["core-1", "core-0"] == (0.1, 100)
    assert links["edge", "core-0"] == (2, 1)
    assert links["core-1", "edge"] == (3, 2)
    assert links["core-0", "far"] == (10, 5)
    assert ("far", "edge") not in links and ("edge", "far") not in links


def test_unified_memory_is_a_part_of_the_hosts() -> None:
    text = PAIR.replace("gpu: L4, count: 4", "gpu: GB10, count: 2") + "  inside_machine: {latency_ms: 0.01, bandwidth_gbit_per_s: 200}\n"
    first, second = (d for d in read_inventory(text, where="x").devices if d.machine == "b")
    assert first.memory_bytes == second.memory_bytes == int(128 * 2**30 * 0.9) // 2
    assert first.achieved_flops_per_s.value == 92.3e12 and first.achieved_flops_per_s.provenance == "measured"
    assert first.peak_flops_per_s is None, "NVIDIA prints none"


def test_zones_of_a_region_need_a_link_class() -> None:
    text = PAIR.replace("region: west", "region: east, zone: two")
    with pytest.raises(InputError) as refusal:
        read_inventory(text.replace("[east, west]", "[east, east]"), where="x.yaml")
    assert refusal.value.line == ("InputError: x.yaml: links.same_region is missing, and machines a and b of one region need it → "
                                  "give links.same_region: {latency_ms: …, bandwidth_gbit_per_s: …}")


@pytest.mark.parametrize(("change", "line"), [
    (("gpu: L4", "gpu: L4O"), "x.yaml: machines.1 (b): no GPU 'L4O' in the catalogue → nearest: L4-24GB, "),
    (("gpu: A100-SXM4-80GB", "gpu: A100"), "x.yaml: machines.0 (a): no GPU 'A100' in the catalogue → nearest: A100-SXM4-40GB, A100-SXM4-80GB"),
    (("gpu: L4", "gpu: L20"), "x.yaml: machines.1 (b): the memory and the memory bandwidth of L20-PCIe are not known, so nothing can be planned "
                              "on it → give memory_gib: …, memory_gb_per_s: … beside gpu"),
    (("gpu: L4", "gpu: H800"), "the memory bandwidth of H800-SXM-80GB is not known"),
    (("host_memory_gib: 128", "host_memory_gib: 128 GB"), "machines.1.host_memory_gib: Input should be a valid number, unable to parse string as a "
                                                          "number (got '128 GB')"),
    (("host_memory_gib: 128", "host_memory_gib: -128"), "machines.1.host_memory_gib: Input should be greater than 0"),
    (("bandwidth_gbit_per_s: 2", "bandwidth_mbit_per_s: 2000"), "bandwidth_mbit_per_s: unknown key; known here: bandwidth_gbit_per_s, between, "),
    (("latency_ms: 30", "latency_ms: 30000000"), "links.regions.0.latency_ms: Input should be less than or equal to 60000"),
    (("name: b", "name: a"), "x.yaml: machines.1 (a): machine 'a' is described twice → give each group of machines a name of its own"),
    (("count: 4", "count: 0"), "x.yaml: machines.1.gpus.0.count: Input should be greater than or equal to 1 (got '0')"),
    (("cpus: 32", "cpu: 32"), "x.yaml: machines.1.cpus: missing; give it a value; machines.1.cpu: unknown key; known here: count, cpus, gpus"),
    (("[east, west]", "[east, wset]"), "x.yaml: links.regions.0: no region is called 'wset' → use east, west"),
    ((", bandwidth_gbit_per_s: 2", ""), "give latency_ms and bandwidth_gbit_per_s, or connected: false"),
    (("latency_ms: 30, bandwidth_gbit_per_s: 2", "latency_ms: 30, connected: false"), "has neither latency nor bandwidth"),
    (("latency_ms: 30", "latency_ms: .nan"), "links.regions.0.latency_ms"),
    (("name: pair", "name: ../pair"), "is not a name"),
    (("name: pair", "name: [pair"), "x.yaml is not YAML, line"),
    (("name: pair", "name: !!python/object:os.system pair"), "x.yaml is not YAML"),
    (("count: 2}", "count: 2}, {gpu: A100-SXM4-80GB, count: 64"), "x.yaml is not YAML"),
    (("name: a,", "name: a, count: 4096,"), "x.yaml: 8196 GPUs in 4097 machines → describe at most 16384 GPUs in 1024 machines"),
])
def test_messages(change: tuple[str, str], line: str) -> None:
    assert change[0] in PAIR
    with pytest.raises(InputError) as refusal:
        read_inventory(PAIR.replace(*change, 1), where="x.yaml")
    assert line in refusal.value.line


def test_pairs_of_regions_that_are_missing_are_named() -> None:
    with pytest.raises(InputError, match=r"links.between_regions is missing, and regions east and west need it"):
        read_inventory(PAIR.split("links:")[0], where="x")


def test_own_figures_make_a_class_of_their_own() -> None:
    text = PAIR.replace("gpu: L4", "gpu: RTX 4090, achieved_tflops: 150")
    device = next(d for d in read_inventory(text, where="x").devices if d.machine == "b")
    assert device.device_class == "RTX-4090-24GB-150TFLOPS"
    assert device.achieved_flops_per_s.value == 150e12 and device.achieved_flops_per_s.source == "as the inventory says"
    assert device.peak_flops_per_s and device.peak_flops_per_s.value == 165.2e12


@given(st.text(max_size=60))
def test_any_text_is_an_inventory_or_a_line(text: str) -> None:
    try:
        read_inventory(text, where="x")
    except InputError as error:
        assert "\n" not in error.line and error.line.startswith("InputError: x")
