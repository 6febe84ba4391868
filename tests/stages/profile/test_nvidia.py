"""Reading NVML. There is no driver here: the stand-in below answers in place of its library, with pynvml's own names and errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stages.profile.devices import nvidia
from stages.profile.devices.nvidia import condition, driver_present, find, load_nvml

pynvml = pytest.importorskip("pynvml")
GIB = 2**30


class Nvml:
    """Answers like the module ``pynvml``; a GPU is a dictionary, a missing value raises what NVML raises."""

    NVMLError = pynvml.NVMLError
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    nvmlMemory_v2 = pynvml.nvmlMemory_v2
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    nvmlClocksThrottleReasonSwPowerCap = pynvml.nvmlClocksThrottleReasonSwPowerCap
    nvmlClocksThrottleReasonHwThermalSlowdown = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown

    def __init__(self, *gpus: dict[str, object]) -> None:
        self.gpus = gpus
        self.closed = False

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.closed = True

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, object]:
        if "lost" in self.gpus[index]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self.gpus[index]

    def _get(self, gpu: dict[str, object], key: str) -> object:
        if key not in gpu:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu[key]

    def nvmlDeviceGetName(self, gpu: dict[str, object]) -> object:
        return self._get(gpu, "name")

    def nvmlDeviceGetUUID(self, gpu: dict[str, object]) -> object:
        return self._get(gpu, "uuid")

    def nvmlDeviceGetCudaComputeCapability(self, gpu: dict[str, object]) -> object:
        return self._get(gpu, "capability")

    def nvmlDeviceGetMemoryInfo(self, gpu: dict[str, object], version: object = None) -> object:
        total, reserved = self._get(gpu, "memory" if version is None else "memory_v2")
        return SimpleNamespace(total=total, reserved=reserved)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, object]:
        for gpu in self.gpus:
            instances = gpu.get("instances", {})
            assert isinstance(instances, dict)
            for known in (gpu, *instances.values()):
                if known["uuid"] == uuid:
                    return known
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: dict[str, object]) -> dict[str, object]:
        return next(gpu for gpu in self.gpus if instance in gpu["instances"].values())  # type: ignore[attr-defined]

    def nvmlDeviceGetClockInfo(self, gpu: dict[str, object], kind: int) -> object:
        return self._get(gpu, "clock")

    def nvmlDeviceGetMaxClockInfo(self, gpu: dict[str, object], kind: int) -> object:
        return self._get(gpu, "max_clock")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: dict[str, object]) -> object:
        return self._get(gpu, "reasons")

    def nvmlDeviceGetMigMode(self, gpu: dict[str, object]) -> object:
        return (self._get(gpu, "mig"), 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: dict[str, object]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: dict[str, object], place: int) -> dict[str, object]:
        instances = gpu["instances"]
        assert isinstance(instances, dict)
        if place not in instances:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return instances[place]


A100 = {"name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-a", "capability": (8, 0), "memory": (80 * GIB, 0), "memory_v2": (80 * GIB, GIB // 2), "mig": 0}


def test_stand_in_uses_only_names_that_pynvml_has() -> None:
    missing = [name for name in vars(Nvml) if name.lower().startswith("nvml") and not hasattr(pynvml, name)]
    assert missing == []


def test_memory_is_what_a_program_may_use() -> None:
    nvml = Nvml(A100)
    finding = find(nvml)
    (gpu,) = finding.devices
    assert (gpu.name, gpu.uuid, gpu.compute_capability, gpu.dtypes) == ("NVIDIA A100-SXM4-80GB", "GPU-a", "8.0", ("bf16", "fp16", "fp32"))
    assert gpu.memory_bytes == 80 * GIB - GIB // 2, "less what the driver keeps"
    assert finding.notes == () and nvml.closed


def test_old_driver_old_card_bytes_for_text() -> None:
    (gpu,) = find(Nvml({"name": b"Tesla V100-SXM2-32GB", "uuid": b"GPU-v", "capability": (7, 0), "memory": (32 * GIB, 0)})).devices
    assert (gpu.name, gpu.memory_bytes, gpu.dtypes) == ("Tesla V100-SXM2-32GB", 32 * GIB, ("fp16", "fp32"))


def test_mig_instances_stand_in_place_of_their_gpu() -> None:
    instances = {0: {"name": "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "uuid": "MIG-1", "memory": (40 * GIB, 0)},
                 4: {"name": "NVIDIA A100-SXM4-80GB MIG 2g.20gb", "uuid": "MIG-2", "memory": (20 * GIB, 0)}}
    finding = find(Nvml(A100 | {"mig": 1, "instances": instances}, A100 | {"uuid": "GPU-b"}))
    assert [(d.id, d.uuid, d.parent, d.memory_bytes, d.compute_capability) for d in finding.devices] == [
        ("gpu-0", "MIG-1", "GPU-a", 40 * GIB, "8.0"), ("gpu-1", "MIG-2", "GPU-a", 20 * GIB, "8.0"),
        ("gpu-2", "GPU-b", "", 80 * GIB - GIB // 2, "8.0")]


def test_clocks_and_what_holds_them_down() -> None:
    instance = {"name": "A100 MIG 1g.10gb", "uuid": "MIG-1", "memory": (10 * GIB, 0)}
    hot = {"uuid": "GPU-h", "clock": 1005, "max_clock": 1410, "reasons": pynvml.nvmlClocksThrottleReasonSwPowerCap
           | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, "instances": {0: instance}}
    nvml = Nvml(A100 | hot, A100 | {"uuid": "GPU-i", "clock": 210, "max_clock": 1410, "reasons": pynvml.nvmlClocksThrottleReasonGpuIdle}, A100)
    assert condition(nvml, "GPU-h") == "SM 1005 of 1410 MHz, slowed by power cap and temperature (hardware)"
    assert condition(nvml, "MIG-1") == condition(nvml, "GPU-h"), "an instance has its GPU's clocks"
    assert condition(nvml, "GPU-i") == "SM 210 of 1410 MHz", "idle is no fault"
    assert condition(nvml, "GPU-a") == "" and condition(nvml, "GPU-nobody") == "" and nvml.closed


def test_every_reason_has_its_name_in_pynvml() -> None:
    assert all(hasattr(pynvml, name) for name in nvidia._REASONS)


def test_what_cannot_be_read_is_unknown_and_said() -> None:
    finding = find(Nvml({"name": "NVIDIA GB10", "uuid": "GPU-u"}, {"lost": True}, A100))
    unified, a100 = finding.devices
    assert unified.memory_bytes is None and unified.compute_capability == "" and "bf16" not in unified.dtypes
    assert a100.id == "gpu-1"
    assert any("GB10" in n and "memory" in n for n in finding.notes)
    assert any(n.startswith("GPU 1 could not be read and is left out") for n in finding.notes)


def test_without_a_driver_real_nvml_says_so() -> None:
    if driver_present():
        pytest.skip("this machine has an NVIDIA driver")
    finding = find(load_nvml())
    assert finding.devices == () and finding.notes[0].startswith("NVML cannot be used: ")
