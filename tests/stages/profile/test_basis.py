"""What moves a fingerprint and what does not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.topology import Topology
from stages.profile.basis import RATE_TOLERANCE, anchored, raw_basis, same_rate
from stages.profile.inventory import read_inventory
from tests.stages.profile.fleets import PAIR, link, live_draft, with_link, without_device, without_machine


def test_an_inventory_is_exact() -> None:
    base = anchored(read_inventory(PAIR, where="x"), [])
    again = anchored(read_inventory(PAIR, where="other"), [base])
    assert again.fingerprint == base.fingerprint
    for change in [("bandwidth_gbit_per_s: 2", "bandwidth_gbit_per_s: 2.01"), ("latency_ms: 30", "latency_ms: 31"), ("count: 4", "count: 3"),
                   ("price_per_hour: 0.5", "price_per_hour: 0.6"), ("host_memory_gib: 128", "host_memory_gib: 256"), ("cpus: 32", "cpus: 16"),
                   ("region: west", "region: west, zone: z"), ("gpu: L4", "gpu: L4, achieved_tflops: 90")]:
        assert anchored(read_inventory(PAIR.replace(*change), where="x"), [base]).fingerprint != base.fingerprint, change
    assert anchored(read_inventory(PAIR.replace("latency_ms: 30, bandwidth_gbit_per_s: 2", "connected: false"), where="x"), []).fingerprint \
        != base.fingerprint


def test_one_pair_of_machines_changed_in_an_inventory_counts() -> None:
    text = PAIR.replace("name: b,", "name: b, count: 3,") + "  same_zone: {latency_ms: 0.1, bandwidth_gbit_per_s: 25}\n  machines:\n"
    pairs = [text + f"    - {{between: [b-0, b-1], latency_ms: 0.1, bandwidth_gbit_per_s: {rate}}}\n" for rate in (24.9, 25.1)]
    pairs.append(text + "    - {between: [b-0, b-1], connected: false}\n")
    prints = {anchored(read_inventory(t, where="x"), []).fingerprint for t in pairs}
    assert len(prints) == 3


@given(st.floats(1 / 1.3, 1.3), st.floats(1 / 1.4, 1.4), st.floats(1 / 1.9, 1.9))
def test_noise_within_the_tolerance_keeps_the_fingerprint(flops: float, gbit: float, ms: float) -> None:
    first = anchored(live_draft(), [])
    noisy = anchored(live_draft(flops=2e14 * flops, gbit=10 * gbit, ms=5 * ms), [first])
    assert noisy.fingerprint == first.fingerprint and noisy.basis == first.basis
    assert noisy.devices[0].achieved_flops_per_s.value == pytest.approx(2e14 * flops), "what was measured is kept, only the anchor stays"


@pytest.mark.parametrize("changed", [live_draft(flops=1.2e14), live_draft(flops=3e14), live_draft(gbit=4.0), live_draft(ms=20.0)])
def test_a_real_change_moves_it(changed: object) -> None:
    first = anchored(live_draft(), [])
    assert anchored(changed, [first]).fingerprint != first.fingerprint  # type: ignore[arg-type]


def test_slow_drift_is_measured_from_the_anchor_not_from_the_last_profile() -> None:
    profiles = [anchored(live_draft(), [])]
    for step in range(1, 9):
        profiles.insert(0, anchored(live_draft(flops=2e14 * (1 + RATE_TOLERANCE / 4) ** step), profiles))
    prints = [p.fingerprint for p in profiles]
    assert prints[-1] == prints[-2] == prints[-3] != prints[0], "small steps stay, until they add up to more than the tolerance"


def test_order_of_machines_devices_and_links_does_not_matter() -> None:
    draft = live_draft(machines=4)
    first = anchored(draft, [])
    for seed in range(5):
        shuffle = random.Random(seed)
        mixed = replace(draft, machines=tuple(shuffle.sample(draft.machines, len(draft.machines))),
                        devices=tuple(shuffle.sample(draft.devices, len(draft.devices))),
                        links=tuple(shuffle.sample(draft.links, len(draft.links))))
        assert anchored(mixed, []).fingerprint == first.fingerprint


def test_a_device_gone_and_back_again() -> None:
    a = anchored(live_draft(), [])
    b = anchored(without_device(live_draft(flops=2.2e14), "m1.gpu-1"), [a])
    assert b.fingerprint != a.fingerprint
    assert b.basis == a.basis, "what stayed keeps its anchors"
    again = anchored(live_draft(flops=1.9e14), [b, a])
    assert again.fingerprint == a.fingerprint


def test_a_machine_gone_and_back_again_far_back_in_the_history() -> None:
    a = anchored(live_draft(), [])
    gone = [anchored(without_machine(live_draft(flops=2e14 + i * 1e12), "m2"), [a]) for i in range(4)]
    assert len({g.fingerprint for g in gone}) == 1 and gone[0].fingerprint != a.fingerprint
    assert anchored(live_draft(), [*reversed(gone), a]).fingerprint == a.fingerprint


def test_the_newest_of_two_matches_wins() -> None:
    a = anchored(live_draft(flops=2.0e14), [])
    faster = anchored(live_draft(flops=3.0e14), [a])
    assert faster.fingerprint != a.fingerprint
    between = live_draft(flops=2.5e14)
    assert anchored(between, [faster, a]).fingerprint == faster.fingerprint
    assert anchored(between, [a, faster]).fingerprint == a.fingerprint


def test_another_clusters_anchors_are_not_taken() -> None:
    draft = live_draft()
    other: Topology = anchored(replace(draft, cluster=draft.cluster.model_copy(update={"name": "other"})), [])
    assert anchored(live_draft(flops=2.1e14), [other]).basis["compute:A100"] == 2.1e14


def test_a_failed_probe_and_a_slow_edge_are_in_the_fingerprint() -> None:
    first = anchored(live_draft(), [])
    failed = anchored(with_link(live_draft(), link("m0", "m1", probe="failed")), [first])
    slow = anchored(with_link(live_draft(), link("m0", "m1", gbit=1.0)), [first])
    absent = anchored(replace(live_draft(), links=tuple(k for k in live_draft().links if (k.source, k.target) != ("m0", "m1"))), [first])
    assert len({first.fingerprint, failed.fingerprint, slow.fingerprint}) == 3
    assert absent.fingerprint == failed.fingerprint, "no link and a link that failed are the same to a plan"
    assert raw_basis(with_link(live_draft(), link("m0", "m1", gbit=1.0)))["bandwidth:m0 → m1"] == pytest.approx(1.25e8)


def test_tiny_latencies_are_one_latency() -> None:
    assert same_rate("latency:inside A100", 5e-6, 80e-6)
    assert not same_rate("latency:within r", 5e-3, 11e-3)


def test_what_a_cpu_shares_with_other_programs_may_move_further_than_a_gpus_own() -> None:
    assert same_rate("memory:cpu-x-1c", 2e10, 8e9) and not same_rate("memory:A100", 2e12, 0.8e12)
    assert same_rate("bandwidth:inside cpu-x-1c", 7e9, 3e9) and not same_rate("bandwidth:within r", 7e8, 3e8)
    assert same_rate("bandwidth:within r", 7e9, 3e9) and not same_rate("bandwidth:within r", 9e9, 3e9), "one connection is a core's work"
    assert not same_rate("bandwidth:within r", 2e9, 9e8)
    assert same_rate("compute:cpu-x-1c", 1.7e11, 1.0e11) and not same_rate("compute:A100", 1.7e14, 1.0e14)
    assert not same_rate("compute:cpu-x-1c", 1.7e11, 0.8e11)


@given(st.sampled_from(["compute:x", "memory:x", "memory:cpu-x", "bandwidth:inside x", "bandwidth:within r", "latency:within r"]),
       st.floats(1e-6, 1e15), st.floats(1e-6, 1e15))
def test_sameness_is_symmetric_and_everything_is_itself(name: str, a: float, b: float) -> None:
    assert same_rate(name, a, a)
    assert same_rate(name, a, b) == same_rate(name, b, a)
