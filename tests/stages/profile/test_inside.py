"""The all-reduce among the devices of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artifacts.errors import HetrlError
from artifacts.topology import Link
from stages.profile.devices import cpu
from stages.profile.devices.found import FoundDevice
from stages.profile.devices.visible import visible
from stages.profile.host import this_host
from stages.profile.inside import Inside, group_sizes, inside_link, joined_by, reduce_inside
from stages.profile.local import profile_local
from stages.profile.report import topology_page
from tests.stages.profile.fleets import live_draft

FAULTS = Path(__file__).parent / "faults"
LINK = Link(source="m", target="m", latency_s=1e-5, bandwidth_bytes_per_s=5e9, provenance="measured", probe="ok")


def test_every_group_size_is_measured_and_summed_right() -> None:
    pytest.importorskip("torch")
    inside = reduce_inside(cpu.find(this_host(), shares=3).devices, seconds=0.4)
    assert (inside.backend, inside.fault, inside.wrong) == ("gloo", "", False)
    assert list(inside.bus_bytes_per_s) == [2, 3] and all(rate > 1e6 for rate in inside.bus_bytes_per_s.values()) and inside.spread > 0
    assert "with 3 devices" in inside.line and "sums right" in inside.line


def test_a_wrong_sum_is_found_and_the_link_must_not_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAULTS), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("HETRL_TEST_FAULT", "wrong sum")
    inside = reduce_inside(cpu.find(this_host(), shares=2).devices, seconds=0.2)
    assert inside.wrong and inside.fault == "the sum is wrong with 2 devices (gloo)" and inside.bus_bytes_per_s == {}
    assert inside_link(LINK, inside).probe == "failed"
    with pytest.raises(HetrlError, match=r"strict profile of bench: all-reduce: the sum is wrong with 2 devices \(gloo\)"):
        profile_local(devices=2, seconds=0.5, machine="bench", strict=True, report=lambda *_: None)


def _gpu(vendor: str, index: int, parent: str = "") -> FoundDevice:
    return FoundDevice(index=index, vendor=vendor, name="a GPU", uuid=f"U-{index}", memory_bytes=1, dtypes=(), parent=parent)  # type: ignore[arg-type]


def test_gpus_of_one_maker_are_joined_by_their_makers_library_and_all_others_through_the_host() -> None:
    nvidia, amd = [_gpu("nvidia", 0), _gpu("nvidia", 1)], [_gpu("amd", 2), _gpu("amd", 3)]
    assert joined_by(nvidia)[:2] == joined_by(amd)[:2] == ("nccl", "cuda")
    for mixed in ([*nvidia, *amd], [nvidia[0], _gpu("nvidia", 1, parent="U-9")], list(cpu.find(this_host(), shares=2).devices)):
        assert joined_by(mixed)[:2] == ("gloo", "cpu")


def test_a_probe_sees_its_own_device_only() -> None:
    devices = [_gpu("nvidia", 0), _gpu("amd", 1), _gpu("amd", 2)]
    assert [visible(d, devices) for d in devices] == [{"CUDA_VISIBLE_DEVICES": "U-0"}, {"HIP_VISIBLE_DEVICES": "0"}, {"HIP_VISIBLE_DEVICES": "1"}]
    assert visible(cpu.find(this_host(), shares=1).devices[0], ()) == {"CUDA_VISIBLE_DEVICES": ""}, "a share of the CPU is no GPU"


def test_sizes_of_groups() -> None:
    assert group_sizes(1) == [] and group_sizes(4) == [2, 3, 4] and group_sizes(8) == [2, 3, 4, 5, 6, 7, 8]
    assert group_sizes(16) == [2, 4, 8, 16] and group_sizes(12) == [2, 4, 8, 12]


def test_one_device_has_nobody_to_sum_with() -> None:
    assert reduce_inside(cpu.find(this_host(), shares=1).devices, seconds=0.2) == Inside()


def test_gpus_do_not_talk_over_sockets() -> None:
    assert inside_link(LINK, Inside(backend="nccl", bus_bytes_per_s={2: 2e11, 3: 1e11})).bandwidth_bytes_per_s == 2e11
    assert inside_link(LINK, Inside(backend="gloo", bus_bytes_per_s={2: 1e9})) == LINK
    assert inside_link(LINK, Inside(fault="probe collective did not answer within 20 s")) == LINK


def test_the_page_has_a_line_a_machine() -> None:
    topology = live_draft().topology({})
    page = topology_page(topology, notes=[], changes=[], previous="",
                         inside={"m0": Inside(backend="nccl", bus_bytes_per_s={2: 2e11}, spread=0.02), "m1": Inside()})
    assert "## All-reduce inside machines\n\n- m0: 200.0 GB/s with 2 devices, ± 2% (nccl, sums right)\n" in page
