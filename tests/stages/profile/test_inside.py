"""The all-reduce among the devices of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artifacts.topology import Link
from stages.profile.devices import cpu
from stages.profile.host import this_host
from stages.profile.inside import Inside, group_sizes, inside_link, reduce_inside
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
