"""Random problems and plans: topologies, jobs, engines, calibrations, and any layouts the kernel accepts, legal for an engine or not."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np

from artifacts.calibration import Calibration, Factor
from artifacts.catalog.engines import DecodeHost, WeightExport
from artifacts.job import Batch, Engine, Job, Lengths
from artifacts.model_spec import ModelSpec
from artifacts.topology import ClusterRef, ComputePoint, Device, Link, Machine, Measured, Topology
from stages.schedule.draft import Layout
from stages.schedule.problem import ACTOR_LOG_PROB, WEIGHT_UPDATE, Problem, build_problem

Layouts = dict[str, Layout]


def measured(value: float) -> Measured:
    return Measured(value=value, provenance="measured")


def random_topology(random: Random) -> Topology:
    """1–4 regions, 1–12 machines of 1–4 devices of 1–3 classes; links the same everywhere, or each its own, a few of them failed, or many."""
    cpus = random.random() < 0.3
    regions = [f"r{i}" for i in range(random.randint(1, 4))]
    classes = {f"class{i}": _random_device(random, cpus) for i in range(random.randint(1, 3))}
    machines, devices = [], []
    for m in range(random.randint(1, 12)):
        name = f"m{m}"
        host = round(10 ** random.uniform(5, 9))
        machines.append(Machine(name=name, region=random.choice(regions), host_memory_bytes=host, cpus=8))
        mixed = random.random() < 0.3
        kind = random.choice(list(classes))
        for g in range(random.choice([1, 2, 2, 4]) if m else random.randint(2, 4)):
            kind = random.choice(list(classes)) if mixed else kind
            devices.append(Device(id=f"{name}.{g}", machine=name, name=kind, device_class=kind, uuid=f"U-{m}-{g}", **classes[kind]))  # type: ignore[arg-type]
    uniform, links = random.random() < 0.3, []
    missing = 0.3 if random.random() < 0.15 else 0.02
    usual = {False: (1e-4, 1e6), True: (1e-5, 1e8)}
    for a in machines:
        for b in machines:
            latency, bandwidth = usual[a is b] if uniform else (10 ** random.uniform(-6, -2), 10 ** random.uniform(4, 8))
            probe = "failed" if a is not b and random.random() < missing else "ok"
            links.append(
                Link(source=a.name, target=b.name, latency_s=latency, bandwidth_bytes_per_s=bandwidth, provenance="measured", probe=probe)
            )  # type: ignore[arg-type]
    return Topology(cluster=ClusterRef(kind="inventory", name="random"), machines=machines, devices=devices, links=links)


def _random_device(random: Random, cpu: bool) -> dict[str, object]:
    points = {(random.choice([4, 16, 64]), random.choice([1, 8, 64, 512])) for _ in range(random.choice([0, 0, 3, 6]))}
    return {
        "vendor": "cpu" if cpu else "nvidia",
        "memory_bytes": round(10 ** random.uniform(5, 7)),
        "achieved_flops_per_s": measured(10 ** random.uniform(5, 9)),
        "compute_curve": [ComputePoint(tokens=t, width=w, flops_per_s=10 ** random.uniform(5, 9)) for w, t in points],
        "memory_bandwidth_bytes_per_s": measured(10 ** random.uniform(5, 9)),
        "host_bandwidth_bytes_per_s": None if random.random() < 0.1 else measured(10 ** random.uniform(5, 8)),
    }


def _random_model(random: Random, name: str) -> ModelSpec:
    kv = random.choice([1, 2])
    return ModelSpec(
        name=name,
        layers=random.randint(1, 9),
        hidden=random.choice([8, 16, 24]),
        heads=kv * random.choice([1, 2]),
        kv_heads=kv,
        head_dim=random.choice([4, 8]),
        intermediate=random.choice([16, 40]),
        vocab=random.choice([50, 128, 300]),
        tied_embeddings=random.random() < 0.5,
        qkv_bias=random.random() < 0.3,
        qk_norm=random.random() < 0.3,
    )


def _random_lengths(random: Random) -> Lengths:
    most = random.randint(2, 60)
    quantiles = {}
    if random.random() < 0.4:
        shares, lengths = sorted(random.sample([0.1, 0.25, 0.5, 0.9, 0.99], 3)), sorted(random.choices(range(most + 1), k=3))
        quantiles = dict(zip(shares, lengths, strict=True))
    mean = float(most) if random.random() < 0.2 else random.uniform(1, most)
    return Lengths(mean=mean, max=most, quantiles=quantiles)


def random_job(random: Random, *, cpus: bool) -> Job:
    """PPO or GRPO, any mode, up to four models, all of an engine's settings that the cost depends on."""
    prompts, responses = random.choice([4, 6, 12]), random.choice([2, 3, 8])
    mini = random.choice([d for d in (0, 1, 2, 3, 4) if not d or prompts % d == 0])
    roles = random.sample(["reference", "critic", "reward"], random.randint(0, 3))
    reward = random.choice(["rule", "model"])
    return Job(
        name="random",
        algorithm=random.choice(["ppo", "grpo"]),
        mode=random.choice(["sync", "async"]),
        models={role: _random_model(random, role) for role in ["actor", *roles]},  # type: ignore[misc]
        reward=reward,
        batch=Batch(
            prompts=prompts,
            responses_per_prompt=responses,
            mini_batch_prompts=mini,
            micro_batch_sequences=1,
            epochs=random.choice([1, 1, 2]),
        ),
        prompt_tokens=_random_lengths(random),
        response_tokens=_random_lengths(random),
        precision=random.choice(["bf16", "fp32"]),
        engine=Engine(
            rollout="hf" if cpus and random.random() < 0.7 else "vllm",
            offload=random.random() < 0.4,
            recompute=random.choice(["none", "selective", "full"]),
        ),
    )


def random_problem(random: Random) -> Problem:
    """Half the problems with a calibration. The engine's own sizes and switches are drawn too: any engine, not the catalog's only."""
    topology = random_topology(random)
    job = random_job(random, cpus=topology.devices[0].vendor == "cpu")
    rows = [*job.tasks(), ACTOR_LOG_PROB, WEIGHT_UPDATE]
    factors = [
        Factor(device_class=c, task=t, factor=random.uniform(0.3, 3), observations=1)
        for c in sorted({d.device_class for d in topology.devices})
        for t in rows
    ]
    calibration = Calibration(factors=factors, overhead_s=random.uniform(0, 1), overhead_calls=random.choice([0, 5, 7]), runs=1) if random.random() < 0.5 else None
    problem = build_problem(job, topology, calibration)
    rollout = problem.engine.rollout.model_copy(
        update={
            "sequences_in_flight": random.choice([3, 37, 256]),
            "prefill_tokens": random.choice([0, 16, 8192]),
            "fused_operations": random.random() < 0.5,
            "host": DecodeHost(gap_s=random.choice([0, 1e-3]), sequence_s=random.choice([0, 1e-4]), layer_s=random.choice([0, 1e-2])),
        }
    )
    memory = problem.engine.memory.model_copy(
        update={
            "reserve": random.choice([0.0, 0.1]),
            "per_rank_bytes": random.choice([0, 10_000]),
            "generation_bytes": random.choice([0, 20_000]),
        }
    )
    engine = problem.engine.model_copy(
        update={
            "rollout": rollout,
            "memory": memory,
            "optimizer_sharded": random.random() < 0.5,
            "flash_attention": random.random() < 0.5,
            "fused_operations": random.random() < 0.5,
            "sequence_parallel": random.random() < 0.5,
            "divided_hops": random.random() < 0.5,
            "hop_messages": random.choice([1, 1, 4]),
            "fully_sharded": random.random() < 0.3,
            "launch_layer_s": random.choice([0, 0, 1e-3, 1.0]),
            "launch_token_s": random.choice([0, 1e-5]),
            "gradient_bytes": random.choice([2, 4]),
            "export": WeightExport(tensor_s=random.choice([0, 1e-3]), collectives=random.choice([0, 3]), collective_s=random.choice([0, 1e-2])),
        }
    )
    return replace(problem, engine=engine, cuts_memo={}, compiled={})


def random_plan(problem: Problem, random: Random) -> list[Layouts]:
    """Groups of any tasks on devices of their own; every task cut as it likes, its ranks anywhere in its group."""
    tasks = [t.name for t in problem.tasks]
    random.shuffle(tasks)
    ends = sorted(random.sample(range(1, len(tasks)), random.randint(0, min(3, len(tasks) - 1, problem.fleet.size - 1))))
    families = [tasks[a:b] for a, b in zip([0, *ends], [*ends, len(tasks)], strict=True)]
    devices = list(range(problem.fleet.size))
    random.shuffle(devices)
    cuts = sorted(random.sample(range(1, len(devices)), len(families) - 1))
    shares = [devices[a:b] for a, b in zip([0, *cuts], [*cuts, len(devices)], strict=True)]
    return [random_group(problem, random, family, here) for family, here in zip(families, shares, strict=True)]


def random_group(problem: Problem, random: Random, tasks: list[str], devices: list[int]) -> Layouts:
    """The usual case, all tasks alike, and any other."""
    alike = random.random() < 0.5
    found: Layouts = {}
    for name in tasks:
        most = min(len(devices), 12)
        pp = random.randint(1, min(problem.task(name).model.layers, most, 4))
        tp = random.randint(1, min(most // pp, 4))
        dp = random.randint(1, most // (pp * tp))
        ranks = random.sample(devices, dp * pp * tp)
        if random.random() < 0.5:
            ranks.sort()
        other = next(iter(found.values()), None)
        if alike and other is not None and other.pp <= problem.task(name).model.layers:
            dp, pp, tp, ranks = other.dp, other.pp, other.tp, other.devices()
        found[name] = random_layout(problem, random, name, np.array(ranks).reshape(dp, pp, tp))
    return found


def random_layout(problem: Problem, random: Random, name: str, ranks: np.ndarray) -> Layout:
    """Any layer split, and shares of which each is a whole number of the replica's micro-batches in every mini-batch."""
    dp, pp, _ = ranks.shape
    layers = problem.task(name).model.layers
    ends = [0, *sorted(random.sample(range(1, layers), pp - 1)), layers]
    split = tuple(b - a for a, b in pairwise(ends))
    if name == "rollout":
        shares = tuple(random.randint(1, 40) for _ in range(dp))
        return Layout(ranks=ranks, layers=split, local=shares, micro=shares, micro_batches=1)
    even = random.random() < 0.5
    micro = (random.randint(1, 4),) * dp if even else tuple(random.randint(1, 4) for _ in range(dp))
    count = random.randint(1, 6)
    local = tuple(m * count * problem.work.mini_batches for m in micro)
    return Layout(ranks=ranks, layers=split, local=local, micro=micro, micro_batches=count)
