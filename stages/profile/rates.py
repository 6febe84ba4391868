"""Achieved rates of GPUs that are described, not at hand: measured elsewhere where somebody did, else a stated part of the spec.

The assumed parts lie between what the measured GPUs of the catalogue reach: matmul 0.91 (A100) and 0.61 (L40S) of the dense rate,
weight reads 0.70 and 0.81 of the memory bandwidth, links inside a machine 0.64 (A100, two GPUs) and 0.63 (L40S, two GPUs).
"""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.catalog.gpus import Gpu
from artifacts.topology import Measured

ASSUMED_COMPUTE = 0.7
ASSUMED_MEMORY = 0.75
ASSUMED_LINK = 0.63
ASSUMED_PCIE_LATENCY_S = 10e-6
ASSUMED_FABRIC_LATENCY_S = 5e-6


def peak_flops(gpu: Gpu) -> Measured | None:
    """Dense 16-bit FLOP/s of the spec sheet."""
    if gpu.dense_16bit_tflops is None:
        return None
    return Measured(value=gpu.dense_16bit_tflops * 1e12, provenance="spec", source=gpu.source)


def achieved_flops(gpu: Gpu) -> Measured | None:
    """FLOP/s of large 16-bit matmuls."""
    if gpu.measured and gpu.measured.gemm_tflops:
        return _elsewhere(gpu, gpu.measured.gemm_tflops * 1e12)
    return _part_of(gpu, gpu.dense_16bit_tflops, 1e12, ASSUMED_COMPUTE, "dense rate")


def memory_bandwidth(gpu: Gpu) -> Measured | None:
    """B/s at which weights are read from device memory."""
    if gpu.measured and gpu.measured.weight_read_gb_per_s:
        return _elsewhere(gpu, gpu.measured.weight_read_gb_per_s * 1e9)
    return _part_of(gpu, gpu.memory_gb_per_s, 1e9, ASSUMED_MEMORY, "memory bandwidth")


def host_bandwidth(gpu: Gpu) -> Measured | None:
    """B/s between host memory and the device, each direction."""
    return _part_of(gpu, gpu.pcie_gb_per_s, 1e9, ASSUMED_LINK, "PCIe rate")


def allreduce(gpus: Sequence[Gpu], count: int) -> dict[int, Measured]:
    """Bus bandwidth by group size of a machine's ``count`` devices, as measured elsewhere; empty where its parts differ or nobody did."""
    kinds = {gpu.name: gpu for gpu in gpus}
    if len(kinds) != 1 or (gpu := gpus[0]).measured is None:
        return {}
    return {n: _elsewhere(gpu, rate * 1e9) for n, rate in gpu.measured.allreduce_gb_per_s.items() if n <= count}


def link_bandwidth(gpu: Gpu) -> Measured | None:
    """B/s between two such GPUs of a machine, one direction: NVLink or the like where it has it, else PCIe.

    Where all-reduce was measured, the figure for two GPUs stands for a link. Wider groups can be far slower than that (the L40S
    without peer-to-peer falls to a fourteenth with eight), which one number a machine cannot say.
    """
    if gpu.measured and gpu.measured.link_gb_per_s:
        return _elsewhere(gpu, gpu.measured.link_gb_per_s * 1e9)
    if gpu.measured and 2 in gpu.measured.allreduce_gb_per_s:
        return _elsewhere(gpu, gpu.measured.allreduce_gb_per_s[2] * 1e9)
    if gpu.fabric_gb_per_s is not None:
        return _part_of(gpu, gpu.fabric_gb_per_s, 1e9, ASSUMED_LINK, "fabric rate")
    return _part_of(gpu, gpu.pcie_gb_per_s, 1e9, ASSUMED_LINK, "PCIe rate")


def link_latency_s(gpu: Gpu) -> float:
    """Assumed: a few microseconds over a fabric, about ten over PCIe."""
    return ASSUMED_FABRIC_LATENCY_S if gpu.fabric_gb_per_s is not None else ASSUMED_PCIE_LATENCY_S


def _elsewhere(gpu: Gpu, value: float) -> Measured:
    assert gpu.measured is not None
    part = f" on {gpu.measured.part}" if gpu.measured.part else ""
    return Measured(value=value, provenance="measured", source=f"measured elsewhere{part}: {gpu.measured.source}")


def _part_of(gpu: Gpu, spec: float | None, unit: float, part: float, what: str) -> Measured | None:
    if spec is None:
        return None
    return Measured(value=spec * unit * part, provenance="assumed", source=f"{part:g} of the {what} ({spec:g}, {gpu.source})")
