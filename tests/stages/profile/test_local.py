"""This machine, profiled for real."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from artifacts.errors import InputError
from stages.profile import measure
from stages.profile.assemble import build_devices, device_class, slowed
from stages.profile.devices import cpu
from stages.profile.devices.found import FoundDevice, Placed
from stages.profile.draft import Draft
from stages.profile.host import device_uuid, safe_name, this_host
from stages.profile.local import profile_local


@pytest.fixture(scope="module")
def draft() -> Draft:
    steps: list[tuple[float, float, str]] = []
    found = profile_local(devices=2, seconds=1.5, machine="bench 1", strict=True, report=lambda *step: steps.append(step))
    assert [s[0] for s in steps] == sorted(s[0] for s in steps) and steps[-1][0] == steps[-1][1], "progress runs up to its total"
    return found


def test_devices_are_equal_shares_of_this_machine(draft: Draft) -> None:
    assert [d.id for d in draft.devices] == ["cpu-0", "cpu-1"]
    first, second = draft.devices
    assert first.memory_bytes == second.memory_bytes
    assert 0.5 * psutil.virtual_memory().total / 2 < first.memory_bytes < psutil.virtual_memory().total / 2
    assert first.uuid != second.uuid
    assert draft.machines[0].name == "bench-1"
    assert first.cores >= 1 and first.vendor == "cpu"


def test_rates_are_measured_with_spread(draft: Draft) -> None:
    for device in draft.devices:
        for rate in (device.achieved_flops_per_s, device.memory_bandwidth_bytes_per_s):
            assert rate.provenance == "measured" and rate.spread > 0 and "fp32" in rate.source
        assert device.achieved_flops_per_s.value > 1e8
        assert device.memory_bandwidth_bytes_per_s.value > 1e7
        assert device.peak_flops_per_s is None, "nobody told us the peak of a CPU"


def test_curve_covers_the_sizes_and_small_matmuls_are_slower(draft: Draft) -> None:
    curve = {(p.tokens, p.width): p.flops_per_s for p in draft.devices[0].compute_curve}
    assert {t for t, _ in curve} == {16, 64, 256, 1024} and {w for _, w in curve} == {64, 128, 256, 512, 1024}
    assert curve[16, 64] < curve[1024, 512]
    assert draft.devices[0].compute_curve == sorted(draft.devices[0].compute_curve, key=lambda p: (p.tokens, p.width))


def test_link_inside_the_machine_is_measured(draft: Draft) -> None:
    (link,) = draft.links
    assert (link.source, link.target, link.probe, link.provenance) == ("bench-1", "bench-1", "ok", "measured")
    assert link.latency_s > 0 and link.bandwidth_bytes_per_s > 0


def test_the_all_reduce_among_its_devices_is_in_the_topology(draft: Draft) -> None:
    pytest.importorskip("torch")
    (rate,) = draft.machines[0].allreduce_bytes_per_s.values()
    assert list(draft.machines[0].allreduce_bytes_per_s) == [2] and rate.value > 1e6 and (rate.provenance, rate.source) == ("measured", "gloo")
    assert all(d.to_host_bandwidth_bytes_per_s is None for d in draft.devices), "a CPU share's memory is the host's"


def test_devices_whose_probes_hang_are_ended_at_their_deadline_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = str(Path(__file__).parent / "faults")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([faults, *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("HETRL_TEST_FAULT", "device hangs")
    monkeypatch.setattr(measure, "START_S", 1.0)
    found = measure.measure_devices(cpu.find(this_host(), shares=2).devices, seconds=0.1)
    assert found.answers == {} and set(found.faults.values()) == {"probe device did not answer within 1 s"}
    assert not [p for p in psutil.Process().children(recursive=True) if "stages.profile.probes.device" in p.cmdline()]


def test_identity_lasts_and_does_not_give_the_machine_id_away() -> None:
    host = this_host()
    assert device_uuid(host, "cpu", 0) == device_uuid(this_host(), "cpu", 0)
    assert device_uuid(host, "cpu", 0) != device_uuid(host, "cpu", 1)
    assert host.identity not in device_uuid(host, "cpu", 0)
    assert device_uuid(replace(host, identity="another"), "cpu", 0) != device_uuid(host, "cpu", 0)


@pytest.mark.parametrize(("raw", "safe"), [("node-1.lab", "node-1.lab"), ("my machine!", "my-machine"), ("..", "machine"), ("a..b", "a.b"),
                                           ("über", "ber"), ("-x-", "x")])
def test_host_names_become_names(raw: str, safe: str) -> None:
    assert safe_name(raw) == safe


def test_default_is_a_device_a_core_and_too_many_shares_are_refused() -> None:
    host = this_host()
    assert 1 <= host.cores <= len(os.sched_getaffinity(0))
    assert len(cpu.find(host, shares=None).devices) == min(host.cores, 8)
    assert len(cpu.find(replace(host, cores=64), shares=None).devices) == 8
    small = replace(host, memory_bytes=2 << 30)
    with pytest.raises(InputError) as refusal:
        cpu.find(small, shares=64)
    assert refusal.value.line == f"InputError: 64 shares of machine {host.name} would have 28 MiB each → use devices: 7 or fewer"
    assert "share them" in cpu.find(replace(host, cores=2), shares=4).notes[0]


def test_a_share_of_less_than_a_core_is_of_a_class_of_its_own() -> None:
    host = replace(this_host(), cores=1, quota=0.5, cpu_name="Some CPU @ 2GHz")
    assert [device_class(d) for d in cpu.find(host, shares=1).devices] == ["cpu-Some-0.5c"]
    assert [device_class(d) for d in cpu.find(host, shares=2).devices] == ["cpu-Some-0.25c"] * 2
    assert [device_class(d) for d in cpu.find(replace(host, quota=1.5), shares=1).devices] == ["cpu-Some-1c"], "one thread cannot use more"


def _gpu(name: str, *, memory_gib: float | None = 80.0, parent: str = "", index: int = 0) -> FoundDevice:
    return FoundDevice(index=index, vendor="nvidia", name=name, uuid=f"GPU-{index}", parent=parent, dtypes=("bf16", "fp16", "fp32"),
                       memory_bytes=None if memory_gib is None else int(memory_gib * 2**30))


def _placed(*devices: FoundDevice) -> list[Placed]:
    return [Placed(d.id, "here", d) for d in devices]


def _answer(flops: float, condition: str = "") -> dict[str, object]:
    return {"engine": "torch 2", "dtype": "bf16", "clock": "wall", "granted": 1.0, "waited": 0.0, "condition": condition,
            "curve": [{"tokens": 4096, "width": 8192, "flops_per_s": flops, "spread": 0.01}],
            "stream": {"rate": 1e12, "spread": 0.1, "size": 1 << 30}, "copy": {"rate": 2e10, "spread": 0.1, "size": 1 << 30},
            "back": {"rate": 1.5e10, "spread": 0.1, "size": 1 << 30}}


def test_class_of_a_gpu_is_the_catalogues_name_where_name_and_memory_agree() -> None:
    assert device_class(_gpu("NVIDIA A100-SXM4-80GB")) == "A100-SXM4-80GB"
    assert device_class(_gpu("NVIDIA A100-SXM4-80GB", memory_gib=10, parent="GPU-x")) == "A100-SXM4-80GB-10GiB"
    assert device_class(_gpu("NVIDIA GeForce RTX 3060", memory_gib=12)) == "GeForce-RTX-3060-12GiB"


def test_a_gpu_that_was_not_measured_takes_the_catalogues_rates_or_is_left_out() -> None:
    known, unknown, blank = _gpu("NVIDIA L4", memory_gib=22.5), _gpu("NVIDIA Nothing", index=1), _gpu("NVIDIA L4", memory_gib=None, index=2)
    built, left_out = build_devices(_placed(known, unknown, blank), {}, stragglers=set())
    assert [d.id for d in built] == ["gpu-0"]
    assert built[0].achieved_flops_per_s.provenance == "assumed"
    assert left_out == ["gpu-1 (NVIDIA Nothing) is left out: it could not be measured and is not in the catalogue",
                        "gpu-2 (NVIDIA L4) is left out: its memory is unknown"]


def test_clocks_go_with_the_measurement_and_a_slowed_gpu_is_named() -> None:
    gpu = _gpu("NVIDIA A100-SXM4-80GB")
    answers = {"gpu-0": _answer(2e14, "SM 1005 of 1410 MHz, slowed by power cap")}
    built, _ = build_devices(_placed(gpu), answers, stragglers=())
    assert "SM 1005 of 1410 MHz" in built[0].achieved_flops_per_s.source
    assert slowed(answers) == ["gpu-0 was measured SM 1005 of 1410 MHz, slowed by power cap: its rates may be low"]
    assert slowed({"gpu-0": _answer(2e14, "SM 1410 of 1410 MHz")}) == []


def test_both_directions_between_host_and_device() -> None:
    built, _ = build_devices(_placed(_gpu("NVIDIA A100-SXM4-80GB")), {"gpu-0": _answer(2e14)}, stragglers=())
    there, back = built[0].host_bandwidth_bytes_per_s, built[0].to_host_bandwidth_bytes_per_s
    assert there and back and (there.value, back.value, back.provenance) == (2e10, 1.5e10, "measured")
    (catalogue,), _ = build_devices(_placed(_gpu("NVIDIA L4", memory_gib=22.5)), {}, stragglers=())
    assert catalogue.to_host_bandwidth_bytes_per_s == catalogue.host_bandwidth_bytes_per_s, "a data sheet says each direction"


def test_a_mig_instance_that_was_not_measured_has_its_part_of_the_catalogues_rates() -> None:
    whole = _gpu("NVIDIA A100-SXM4-80GB")
    instance = replace(_gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb", memory_gib=40, parent="GPU-0", index=1), part=3 / 7)
    unknown = replace(instance, part=None, index=2)
    (a, b), left_out = build_devices(_placed(whole, instance, unknown), {}, stragglers=())
    assert b.achieved_flops_per_s.value == pytest.approx(a.achieved_flops_per_s.value * 3 / 7)
    assert b.memory_bandwidth_bytes_per_s.value == pytest.approx(a.memory_bandwidth_bytes_per_s.value / 2)
    assert b.device_class == "A100-SXM4-80GB-MIG-3g.40gb-40GiB" and b.mig_parent == "GPU-0" and len(left_out) == 1


def test_devices_of_a_class_have_one_rate_and_a_straggler_its_own_class() -> None:
    gpus = tuple(_gpu("NVIDIA A100-SXM4-80GB", index=i) for i in range(4))
    answers = {f"gpu-{i}": _answer(flops) for i, flops in enumerate([2.0e14, 2.2e14, 2.1e14, 1.0e14])}
    built, _ = build_devices(_placed(*gpus), answers, stragglers={"gpu-3"})
    assert [d.achieved_flops_per_s.value for d in built] == [2.1e14] * 3 + [1.0e14]
    assert [d.device_class for d in built] == ["A100-SXM4-80GB"] * 3 + ["A100-SXM4-80GB-slow-gpu-3"]
