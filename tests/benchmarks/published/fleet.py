"""The fleet of a published run as a topology: catalogue parts at the rates ``profile`` would give them, others as ``data/gpus.yaml`` says."""

from __future__ import annotations

from artifacts.catalog.gpus import gpu_by_name
from artifacts.topology import ClusterRef, ComputePoint, Device, Link, Machine, Measured, Topology
from artifacts.units import GIB
from stages.profile import rates
from tests.benchmarks.published.facts import Run, SizedRates, own_parts, sized_rates

HOST_BYTES = 2048 * GIB
PCIE_BYTES_PER_S = 32e9
"""PCIe 4 × 16, one direction: for parts of which nothing else is known."""


def build_topology(run: Run, *, gpus: int, ring: int) -> Topology:
    """Machines of ``gpus`` GPUs in rank order. ``ring``: GPUs of a tensor-parallel group, for rates that were measured by their number."""
    count = -(-gpus // run.gpus_per_machine)
    parts = run.machines or [run.part] * count
    machines = [f"m{i:03d}" for i in range(count)]
    devices = [
        _device(part, machine, g)
        for machine, part in zip(machines, parts, strict=True)
        for g in range(min(run.gpus_per_machine, gpus - run.gpus_per_machine * int(machine[1:])))
    ]
    links = []
    for a, part in zip(machines, parts, strict=True):
        latency, bandwidth = _inside(part, ring)
        for b in machines:
            here = (latency, bandwidth) if a == b else (run.between_latency_us * 1e-6, run.between_gb_per_s * 1e9)
            links.append(Link(source=a, target=b, latency_s=here[0], bandwidth_bytes_per_s=here[1], provenance="assumed"))
    boxes = [Machine(name=m, host_memory_bytes=HOST_BYTES, cpus=128) for m in machines]
    return Topology(cluster=ClusterRef(kind="inventory", name="published"), machines=boxes, devices=devices, links=links)


def _device(part: str, machine: str, place: int) -> Device:
    name = f"{machine}.{place:02d}"
    found = own_parts().get(part)
    if found is not None:
        achieved = found.achieved_tflops * 1e12 or found.tflops * 1e12 * rates.ASSUMED_COMPUTE
        return Device(
            id=name,
            machine=machine,
            vendor=found.vendor,
            name=part,
            device_class=_class(part),
            uuid=name,
            memory_bytes=int(found.memory_gb * 1e9),
            peak_flops_per_s=Measured(value=found.tflops * 1e12, provenance="spec", source=found.source),
            achieved_flops_per_s=Measured(value=achieved, provenance="assumed", source=found.source),
            memory_bandwidth_bytes_per_s=Measured(value=found.memory_gb_per_s * 1e9 * rates.ASSUMED_MEMORY, provenance="assumed"),
            host_bandwidth_bytes_per_s=Measured(value=PCIE_BYTES_PER_S * rates.ASSUMED_LINK, provenance="assumed"),
        )
    gpu, sized = gpu_by_name(part, where="runs.yaml"), sized_rates().get(part)
    compute, reads, memory = rates.achieved_flops(gpu), rates.memory_bandwidth(gpu), gpu.memory_bytes
    if sized is not None:
        best = max(max(row) for row in sized.gemm_tflops.values())
        compute = Measured(value=best * 1e12, provenance="measured", source=sized.source)
        reads = Measured(value=sized.weight_read_gb_per_s * 1e9, provenance="measured", source=sized.source)
    assert compute is not None and reads is not None and memory is not None, f"{part}: rates are not known"
    return Device(
        id=name,
        machine=machine,
        vendor=gpu.vendor,
        name=gpu.name,
        device_class=gpu.name,
        uuid=name,
        memory_bytes=memory,
        peak_flops_per_s=rates.peak_flops(gpu),
        achieved_flops_per_s=compute,
        compute_curve=_curve(sized) if sized else [],
        memory_bandwidth_bytes_per_s=reads,
        host_bandwidth_bytes_per_s=rates.host_bandwidth(gpu),
    )


def _curve(sized: SizedRates) -> list[ComputePoint]:
    table = sized.gemm_tflops.items()
    points = [(t, width, rate) for width, row in table for t, rate in zip(sized.tokens, row, strict=True)]
    return [ComputePoint(tokens=t, width=width, flops_per_s=rate * 1e12) for t, width, rate in points]


def _inside(part: str, ring: int) -> tuple[float, float]:
    """(latency, bytes/s) between GPUs of a machine: the rate measured for so many GPUs where there is one."""
    found = own_parts().get(part)
    if found is not None:
        by_size, whole = found.pairs_gb_per_s, found.fabric_gb_per_s * rates.ASSUMED_LINK
        rate = by_size[min(by_size, key=lambda n: (n < ring, abs(n - ring)))] if by_size else whole
        return found.latency_us * 1e-6, rate * 1e9
    gpu = gpu_by_name(part, where="runs.yaml")
    sized, link = sized_rates().get(part), rates.link_bandwidth(gpu)
    assert link is not None, f"{part}: link rate is not known"
    measured = sized.allreduce_gb_per_s.get(ring) if sized else None
    return rates.link_latency_s(gpu), measured * 1e9 if measured else link.value


def _class(part: str) -> str:
    return part.split(" ")[0]
