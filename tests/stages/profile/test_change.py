"""What changed, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from artifacts.topology import Unreachable
from flows import events
from flows.graph import Selection
from flows.pipeline import RunOptions, StepResult
from stages.profile.basis import anchored
from stages.profile.change import describe_change
from stages.profile.draft import Draft
from stages.profile.inventory import read_inventory
from tests.stages.profile.bench import Bench
from tests.stages.profile.fleets import PAIR, device, link, live_draft, with_link, without_device, without_machine


def _after(draft: Draft) -> list[str]:
    first = anchored(live_draft(), [])
    return describe_change(first, anchored(draft, [first]))


def test_noise_is_not_a_change() -> None:
    assert _after(live_draft(flops=2.3e14, gbit=8, ms=6)) == []


def test_devices_gone_new_and_changed() -> None:
    assert _after(without_device(live_draft(), "m1.gpu-1")) == ["device m1.gpu-1 (A100, 40.0 GiB) is gone from machine m1"]
    more = replace(live_draft(), devices=(*live_draft().devices, device("m0.gpu-2", "m0")))
    assert _after(more) == ["device m0.gpu-2 (A100, 40.0 GiB) is new in machine m0"]
    swapped = tuple(d if d.id != "m0.gpu-0" else d.model_copy(update={"uuid": "GPU-new", "memory_bytes": 80 * 2**30}) for d in live_draft().devices)
    assert _after(replace(live_draft(), devices=swapped)) == [
        "device m0.gpu-0 is another one: A100 (GPU-m0.gpu-0) → A100 (GPU-new)", "device m0.gpu-0: memory 40.0 GiB → 80.0 GiB"]


def test_machines_gone_new_and_unreachable() -> None:
    assert _after(without_machine(live_draft(), "m2")) == ["machine m2 is gone, with 2 devices"]
    lost = replace(without_machine(live_draft(), "m2"), unreachable=(Unreachable(machine="m2", reason="no answer within 30 s"),))
    assert _after(lost) == ["machine m2 cannot be reached (no answer within 30 s): 2 devices left out"]
    assert _after(live_draft(machines=4)) == ["machine m3 is new, with 2 devices"]


def test_rates_worse_and_better_by_how_much() -> None:
    assert _after(live_draft(flops=1e14)) == ["class A100: compute 50% worse (200.0 TFLOP/s → 100.0 TFLOP/s)"]
    assert _after(live_draft(gbit=5)) == ["links within the network: bandwidth 50% worse (1.2 GB/s → 625.0 MB/s)"]
    assert _after(live_draft(gbit=40)) == ["links within the network: bandwidth 300% better (1.2 GB/s → 5.0 GB/s)"]
    assert _after(live_draft(ms=15)) == ["links within the network: latency higher (5.0 ms → 15.0 ms)"]


def test_one_edge_and_failed_probes() -> None:
    assert _after(with_link(live_draft(), link("m0", "m1", gbit=1))) == ["link m0 → m1: bandwidth far worse than its class"]
    broken = with_link(live_draft(), link("m1", "m0", probe="failed"))
    assert _after(broken) == ["link m1 → m0: its probe failed"]
    before = anchored(broken, [])
    assert describe_change(before, anchored(live_draft(), [before])) == ["link m1 → m0: its probe works again"]


def test_a_link_that_is_no_longer_there() -> None:
    cut = replace(live_draft(), links=tuple(k for k in live_draft().links if {k.source, k.target} != {"m0", "m1"}))
    assert _after(cut) == ["link m0 → m1: not connected any more", "link m1 → m0: not connected any more"]


def test_many_of_a_kind_are_counted() -> None:
    priced = tuple(d.model_copy(update={"price_per_hour": 1.0}) for d in live_draft(machines=8).devices)
    first = anchored(live_draft(machines=8), [])
    lines = describe_change(first, anchored(replace(live_draft(machines=8), devices=priced), [first]))
    assert lines[0] == "device m0.gpu-0: price an hour none → 1.0"
    assert lines[-1] == "… and 8 more changes of devices" and len(lines) == 9


@pytest.mark.parametrize(("change", "line"), [
    (("bandwidth_gbit_per_s: 2", "bandwidth_gbit_per_s: 1.9"), "links between east and west: bandwidth 5% worse (250.0 MB/s → 237.5 MB/s)"),
    (("region: west", "region: east2"), "machine b: region west → east2"),
    (("cpus: 32", "cpus: 16"), "machine b: CPUs 32 → 16"),
    (("host_memory_gib: 128", "host_memory_gib: 64"), "machine b: host memory 128.0 GiB → 64.0 GiB"),
])
def test_inventories_compare_exactly(change: tuple[str, str], line: str) -> None:
    old = anchored(read_inventory(PAIR, where="x"), [])
    text = PAIR.replace(*change)
    if "region" in change[0]:
        text = text.replace("[east, west]", "[east, east2]")
    new = anchored(read_inventory(text, where="x"), [old])
    assert new.fingerprint != old.fingerprint
    assert line in describe_change(old, new)


def test_the_event_says_which_cluster_and_what_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the stage's own summary to what would be emitted; Prefect's server is not asked to take it."""
    bench = Bench(tmp_path)
    text = {"cluster": {"kind": "inventory", "text": PAIR, "where": "pair.yaml"}}
    bench.run("v1", text)
    emitted: list[dict[str, Any]] = []
    monkeypatch.setattr(events, "emit_event", lambda **fields: emitted.append(fields))
    for version, parameters in (("v2", text), ("v3", {"cluster": {**text["cluster"], "text": PAIR.replace("count: 4", "count: 3")}})):
        status, outcome, _ = bench.run(version, parameters, ("v1",))
        assert status == 0, outcome
        run = SimpleNamespace(options=RunOptions(store_url="", selection=Selection(("profile",))))
        events.publish(StepResult("profile", version, False, 1.0, "", outcome.summary), run)  # type: ignore[arg-type]
    gone = "device b.gpu-3 (NVIDIA L4, 22.5 GiB) is gone from machine b"
    assert emitted == [{"event": "hetrl.topology.changed", "resource": {"prefect.resource.id": "hetrl.cluster.pair", "hetrl.replanned": "not yet"},
                        "payload": {"cluster": "pair", "version": "v3", "changes": [gone], "reason": gone}}]
