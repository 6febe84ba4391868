"""Small jobs and topologies for the schedule tests, built by hand so that every number is in sight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from artifacts.catalog import models
from artifacts.job import Batch, Constraints, Engine, Job, Lengths
from artifacts.model_spec import ModelSpec
from artifacts.topology import ClusterRef, ComputePoint, Device, Link, Machine, Measured, Topology
from stages.schedule.cost.iteration import GroupPrice, TaskPrice, price_layouts
from stages.schedule.draft import Layout
from stages.schedule.problem import Problem

GIB = 2**30


@dataclass(frozen=True)
class Kind:
    """A kind of device: FLOP/s, bytes/s of memory, bytes, vendor, bytes/s inside a machine."""

    name: str
    flops: float
    hbm: float
    memory: int
    vendor: str = "nvidia"
    inside: float = 24e9
    dtypes: tuple[str, ...] = ("bf16", "fp16", "fp32")
    curve: tuple[tuple[int, int, float], ...] = ()


A100 = Kind("A100", 284e12, 1435e9, 80 * GIB, inside=240e9)
L40S = Kind("L40S", 222e12, 702e9, 46 * GIB)
L4 = Kind("L4", 75e12, 240e9, 23 * GIB, inside=12e9)
V100 = Kind("V100", 90e12, 700e9, 32 * GIB, dtypes=("fp16", "fp32"))
CPU = Kind("cpu", 2e10, 5e9, 8 * GIB, vendor="cpu", inside=2e9)
SLOW_CPU = Kind("slow-cpu", 5e9, 2e9, 8 * GIB, vendor="cpu", inside=2e9)


def topology(machines: Sequence[tuple[Kind, int]], *, regions: Sequence[str] = (), lan: tuple[float, float] = (2e-5, 12.5e9),
             wan: tuple[float, float] = (5e-3, 0.6e9), failed: Sequence[tuple[int, int]] = (), host: int = 512 * GIB) -> Topology:
    """Machines m0, m1, … each with some devices of one kind; links ``lan`` inside a region, ``wan`` between regions."""
    where = list(regions) or ["here"] * len(machines)
    boxes = [Machine(name=f"m{i}", region=where[i], host_memory_bytes=host, cpus=64) for i in range(len(machines))]
    devices = [
        Device(id=f"m{i}.{g}", machine=f"m{i}", vendor=kind.vendor, name=kind.name, device_class=kind.name, uuid=f"U-{i}-{g}",  # type: ignore[arg-type]
               memory_bytes=kind.memory, achieved_flops_per_s=Measured(value=kind.flops, provenance="measured"), dtypes=list(kind.dtypes),  # type: ignore[arg-type]
               compute_curve=[ComputePoint(tokens=t, width=w, flops_per_s=f) for t, w, f in kind.curve],
               memory_bandwidth_bytes_per_s=Measured(value=kind.hbm, provenance="measured"),
               host_bandwidth_bytes_per_s=Measured(value=25e9, provenance="spec"))
        for i, (kind, count) in enumerate(machines) for g in range(count)
    ]
    links = []
    for a in range(len(machines)):
        for b in range(len(machines)):
            latency, bandwidth = (5e-6, machines[a][0].inside) if a == b else lan if where[a] == where[b] else wan
            probe = "failed" if (a, b) in failed or (b, a) in failed else "ok"
            links.append(Link(source=f"m{a}", target=f"m{b}", latency_s=latency, bandwidth_bytes_per_s=bandwidth, provenance="measured", probe=probe))
    return Topology(cluster=ClusterRef(kind="inventory", name="bench"), machines=boxes, devices=devices, links=links)


def small_model(**changes: int | bool | str) -> ModelSpec:
    """Numbers that are easy to multiply by hand: h 8, a 2, kv 1, e 4, f 16, V 128, L 4, no norms beyond the two."""
    fields: dict[str, object] = {"name": "small", "layers": 4, "hidden": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "intermediate": 16, "vocab": 128}
    return ModelSpec.model_validate(fields | changes)


def job(model: str | ModelSpec = "tiny-qwen3", *, algorithm: str = "grpo", prompts: int = 8, responses: int = 4, mini: int = 0, micro: int = 4,
        prompt: tuple[float, int] = (64, 64), response: tuple[float, int] = (64, 64), engine: Engine | None = None,
        constraints: Constraints | None = None, **fields: object) -> Job:
    spec = models()[model] if isinstance(model, str) else model
    return Job(name="bench", algorithm=algorithm, models={"actor": spec},  # type: ignore[arg-type]
               batch=Batch(prompts=prompts, responses_per_prompt=responses, mini_batch_prompts=mini, micro_batch_sequences=micro),
               prompt_tokens=Lengths(mean=prompt[0], max=prompt[1]), response_tokens=Lengths(mean=response[0], max=response[1]),
               engine=engine or Engine(), constraints=constraints or Constraints(), **fields)  # type: ignore[arg-type]


def big_job(model: str = "Qwen3-8B", *, algorithm: str = "ppo", prompts: int = 64, **fields: object) -> Job:
    """A job that needs GPUs: 8 responses a prompt, 1024 + 1024 tokens, full recomputation."""
    settings: dict[str, object] = {"engine": Engine(recompute="full")} | fields
    return job(model, algorithm=algorithm, prompts=prompts, responses=8, prompt=(1024, 1024), response=(1024, 1024), **settings)  # type: ignore[arg-type]


def layout(
    ranks: list[list[list[int]]], layers: tuple[int, ...], local: tuple[int, ...], micro: tuple[int, ...] = (), micro_batches: int = 1
) -> Layout:
    """A layout from plain lists, ``ranks[replica][stage][shard]``; a rollout's has no micro-batches."""
    return Layout(ranks=np.array(ranks), layers=layers, local=local, micro=micro or local, micro_batches=micro_batches)


def group_price(problem: Problem, **layouts: Layout) -> GroupPrice:
    """What the kernel says about a group laid out by hand."""
    price = price_layouts(problem, tuple(layouts), layouts)
    assert price is not None
    return price


def task_price(problem: Problem, name: str, where: Layout) -> TaskPrice:
    """What the kernel says about one task alone."""
    return group_price(problem, **{name: where}).prices[name]


def with_engine(problem: Problem, *, rollout: dict[str, object] | None = None, memory: dict[str, object] | None = None, **fields: object) -> Problem:
    """The problem with another engine: fields of its capability, of its rollout and of its memory."""
    engine = problem.engine
    nested = {"rollout": engine.rollout.model_copy(update=rollout or {}), "memory": engine.memory.model_copy(update=memory or {})}
    return replace(problem, engine=engine.model_copy(update=nested | fields), cuts_memo={}, compiled={})
