"""The GPU catalogue: what is in it, where it comes from, and how a GPU is found by what people call it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from artifacts.catalog.gpus import Gpu, find_gpu, gpu_by_name, gpus, nearest
from artifacts.errors import InputError


def test_there_are_enough_each_with_a_source() -> None:
    assert len(gpus()) >= 25
    assert all(gpu.source for gpu in gpus().values())
    assert all(gpu.driver_memory is None or gpu.driver_memory.source for gpu in gpus().values())
    assert {gpu.vendor for gpu in gpus().values()} == {"nvidia", "amd"}


@pytest.mark.parametrize(("name", "tflops", "memory_gb_per_s"), [
    ("A100-SXM4-80GB", 312, 2039), ("H100-SXM5-80GB", 989, 3350), ("L40S-48GB", 362.05, 864), ("L4-24GB", 121, 300), ("MI300X-192GB", 1307, 5300),
    ("RTX-3090-24GB", 71, 936), ("RTX-4090-24GB", 165.2, 1008), ("A40-PCIe", 149.7, 696)])
def test_figures_are_the_data_sheets(name: str, tflops: float, memory_gb_per_s: float) -> None:
    gpu = gpus()[name]
    assert (gpu.dense_16bit_tflops, gpu.memory_gb_per_s) == (tflops, memory_gb_per_s)


def test_rates_and_sizes_are_plausible_where_known() -> None:
    for gpu in gpus().values():
        assert gpu.dense_16bit_tflops is None or 50 < gpu.dense_16bit_tflops < 3000, gpu.name
        assert gpu.memory_gb_per_s is None or 250 < gpu.memory_gb_per_s < 10_000, gpu.name
        if gpu.memory_gb and gpu.driver_memory:
            assert 0.93 < gpu.driver_memory.mib * 2**20 / (gpu.memory_gb * 1e9) < 1.08, gpu.name
        if gpu.measured and gpu.measured.gemm_tflops and gpu.dense_16bit_tflops:
            assert gpu.measured.gemm_tflops < gpu.dense_16bit_tflops, gpu.name


def test_unknown_stays_unknown_and_is_listed() -> None:
    assert gpus()["H800-SXM-80GB"].unknown == ["memory bandwidth"]
    assert gpus()["L20-PCIe"].unknown == ["memory", "memory bandwidth"] and gpus()["L20-PCIe"].memory_bytes is None
    assert gpus()["GB10"].unknown == ["memory"], "it is the host's; its compute rate is known by measurement only"
    assert gpus()["A100-SXM4-80GB"].unknown == []
    assert sum(not gpu.unknown for gpu in gpus().values()) >= 25


def test_no_bf16_before_ampere() -> None:
    assert {gpu.architecture for gpu in gpus().values() if "bf16" not in gpu.dtypes} == {"Volta", "Turing"}
    assert all("bf16" not in gpu.dtypes for gpu in gpus().values() if gpu.architecture in ("Volta", "Turing"))


def test_memory_is_the_drivers_where_known_else_the_data_sheets() -> None:
    assert gpus()["L40S-48GB"].memory_bytes == 46068 * 2**20
    assert gpus()["A30-24GB"].memory_bytes == 24 * 10**9


@pytest.mark.parametrize("name", ["A100-SXM4-80GB", "a100 sxm4 80gb", "NVIDIA A100-SXM4-80GB", "A100_SXM4_80GB"])
def test_capitals_and_punctuation_do_not_matter(name: str) -> None:
    assert gpu_by_name(name, where="x").name == "A100-SXM4-80GB"


@pytest.mark.parametrize(("name", "found"), [("L4", "L4-24GB"), ("Tesla T4", "T4-16GB"), ("RTX 4090", "RTX-4090-24GB"), ("H200", "H200-SXM-141GB"),
                                             ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"), ("MI300X", "MI300X-192GB")])
def test_the_drivers_names_are_known_with_and_without_the_vendor(name: str, found: str) -> None:
    gpu = find_gpu(name)
    assert gpu is not None and gpu.name == found


def test_a_name_that_says_too_little_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as refusal:
        gpu_by_name("A100", where="fleet.yaml")
    assert refusal.value.line == ("InputError: fleet.yaml: no GPU 'A100' in the catalogue → nearest: A100-SXM4-40GB, A100-SXM4-80GB, "
                                  "A100-PCIe-80GB, A10-PCIe, HetRL-A100")
    assert nearest("V100")[0].startswith("V100-")
    assert "H100-SXM5-80GB" in nearest("H100")
    assert nearest("") == []


def test_an_entry_may_not_say_what_nobody_reads() -> None:
    with pytest.raises(ValidationError):
        Gpu.model_validate({"name": "X", "vendor": "nvidia", "architecture": "Y", "source": "z", "memory_gib": 3})
