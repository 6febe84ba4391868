"""What the devices of a machine are, whoever made them. No GPU here: amdsmi is a stand-in with that module's names and shapes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stages.profile import measure
from stages.profile.devices import amd
from stages.profile.devices.amd import memory_bytes
from stages.profile.devices.found import Finding, FoundDevice
from stages.profile.devices.unified import share_host_memory
from stages.profile.host import this_host
from stages.profile.probes.launch import Probe

GIB = 2**30


class _Refused(Exception):
    pass


def _amdsmi(*gpus: dict[str, Any]) -> Any:
    def read(handle: dict[str, Any], key: str) -> Any:
        if key not in handle:
            raise _Refused(f"{key} is not supported")
        return handle[key]

    return SimpleNamespace(AmdSmiException=_Refused, amdsmi_init=lambda: None, amdsmi_shut_down=lambda: None,
                           amdsmi_get_processor_handles=lambda: list(gpus), amdsmi_get_gpu_asic_info=lambda h: read(h, "asic"),
                           amdsmi_get_gpu_device_uuid=lambda h: read(h, "uuid"), amdsmi_get_gpu_vram_info=lambda h: read(h, "vram"))


def test_amd_gpus_and_what_their_library_does_not_say() -> None:
    asic = {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"}
    finding = amd.find(_amdsmi({"asic": asic, "uuid": "a", "vram": {"vram_size": 196592}}, {"uuid": "b"},
                               {"asic": asic, "uuid": "c", "vram": {"vram_size": 0}}, {"asic": asic, "uuid": "d"}))
    assert [(d.id, d.name, d.uuid, d.memory_bytes) for d in finding.devices] == [
        ("gpu-0", "AMD Instinct MI300X", "AMD-a", 196592 * 2**20), ("gpu-1", "AMD Instinct MI300X", "AMD-c", None),
        ("gpu-2", "AMD Instinct MI300X", "AMD-d", None)]
    assert finding.notes[0] == "GPU 1 could not be read and is left out: asic is not supported" and len(finding.notes) == 3


@pytest.mark.parametrize(("size", "expected"), [({"value": 192, "unit": "GB"}, 192 * GIB), ({"value": "N/A", "unit": "MB"}, None),
                                                ({"value": 0, "unit": "MB"}, None), ({"value": 5, "unit": "bananas"}, None), (None, None)])
def test_memory_that_is_not_known_is_never_zero(size: Any, expected: int | None) -> None:
    assert memory_bytes(size) == expected


def test_without_amds_library_the_probe_says_so() -> None:
    if amd.load_amdsmi() is not None:
        pytest.skip("this machine has amdsmi")
    with Probe("amdsmi", deadline_s=300) as probe:
        answer = probe.read()
    assert answer["devices"] == [] and "install ROCm's Python package" in answer["notes"][0]


def _found(name: str, index: int, memory: int | None = None, vendor: str = "nvidia") -> FoundDevice:
    return FoundDevice(index=index, vendor=vendor, name=name, uuid=f"u{index}", memory_bytes=memory, dtypes=("fp32",))  # type: ignore[arg-type]


def test_unified_memory_is_the_hosts_and_nothing_else_is_guessed() -> None:
    devices, notes = share_host_memory([_found("NVIDIA GB10", 0), _found("NVIDIA L4", 1), _found("NVIDIA GB10", 2), _found("Orin", 3, 8 * GIB)], 100 * GIB)
    assert [d.memory_bytes for d in devices] == [45 * GIB, None, 45 * GIB, 8 * GIB]
    assert notes[0] == "gpu-0 (NVIDIA GB10) has the host's memory: 90% of it, divided by 2, 45.0 GiB, is taken for its own" and len(notes) == 2
    assert share_host_memory([_found("NVIDIA GB10", 0)], None) == ((_found("NVIDIA GB10", 0),), ())


def test_two_makers_gpus_in_a_machine_are_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither driver is here: what each would list stands in for asking it."""
    listed = {"nvml": Finding((_found("NVIDIA L4", 0, 20 * GIB), _found("NVIDIA L4", 1, 20 * GIB)), ("one",)),
              "amdsmi": Finding((_found("AMD Instinct MI300X", 0, 190 * GIB, "amd"),), ("two",))}
    monkeypatch.setattr(measure, "_ask", listed.__getitem__)
    monkeypatch.setattr("stages.profile.devices.nvidia.driver_present", lambda: True)
    monkeypatch.setattr("stages.profile.devices.amd.driver_present", lambda: True)
    finding = measure.find_devices(this_host(), shares=None)
    assert [(d.id, d.vendor) for d in finding.devices] == [("gpu-0", "nvidia"), ("gpu-1", "nvidia"), ("gpu-2", "amd")]
    assert finding.notes == ("one", "two")
    listed["nvml"] = listed["amdsmi"] = Finding((), ("the driver did not answer",))
    alone = measure.find_devices(replace(this_host(), cores=1), shares=None)
    assert [d.vendor for d in alone.devices] == ["cpu"] and "the driver did not answer" in alone.notes
