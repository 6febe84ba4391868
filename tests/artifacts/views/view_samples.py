"""Documents of three fleets (2 CPU devices, 64 GPUs of three kinds, 1,024 GPUs in eight regions), consistent with each other.

Times follow from round numbers chosen here, not from a cost model: tests of the views check what is shown, not what is true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from artifacts.deployment import Deployment, RankPlacement, RayNode
from artifacts.job import Batch, Job, Lengths
from artifacts.model_spec import ModelSpec
from artifacts.plan import Group, Plan, Strategy
from artifacts.prediction import DeviceMemory, Prediction, TaskTime
from artifacts.search import Arm, Operator, Point, Search
from artifacts.throughput import Header, Iteration, Throughput
from artifacts.topology import ClusterRef, Device, Link, Machine, Measured, Topology
from artifacts.validation import Row, TrendPoint, Validation

GIB = 2**30
KINDS = {  # class → (name, memory GiB, achieved TFLOP/s, memory GB/s)
    "A100-80GB": ("NVIDIA A100-SXM4-80GB", 80, 210, 1700),
    "L40S": ("NVIDIA L40S", 48, 180, 780),
    "L4": ("NVIDIA L4", 24, 55, 270),
    "cpu": ("AMD EPYC 9B45, 1 core", 4, 0.04, 8),
}
QWEN3 = ModelSpec(name="Qwen3-4B", layers=36, hidden=2560, heads=32, kv_heads=8, head_dim=128, intermediate=9728, vocab=151936)


@dataclass(frozen=True)
class Sample:
    job: Job
    topology: Topology
    plan: Plan
    prediction: Prediction
    search: Search
    deployment: Deployment
    throughput: Throughput
    validation: Validation


def small() -> Sample:
    """GRPO on this machine: two CPU devices; the second one only trains."""
    return _sample(
        _topology([("node-a", "cpu", 2, "", "")], name="local"),
        algorithm="grpo",
        prompts=8,
        responses=4,
        groups=[("gen", ["rollout", "reference_inference"], slice(0, 1)), ("train", ["actor_training"], slice(1, 2))],
        seconds=3.1,
    )


def middle() -> Sample:
    """PPO on 24 A100, 24 L40S and 16 L4 in two regions; four L4 idle."""
    machines = [(f"a{i}", "A100-80GB", 8, "us-west", "us-west-1") for i in range(3)]
    machines += [(f"s{i}", "L40S", 8, "us-west", "us-west-2") for i in range(3)]
    machines += [(f"l{i}", "L4", 4, "eu-central", "eu-central-1") for i in range(4)]
    groups = [
        ("rollout", ["rollout"], slice(24, 48)),
        ("actor", ["actor_training", "reference_inference"], slice(0, 16)),
        ("critic", ["critic_training", "critic_inference"], slice(16, 24)),
        ("score", ["reward_inference"], slice(48, 60)),
    ]
    return _sample(_topology(machines, name="testbed"), algorithm="ppo", prompts=384, responses=8, groups=groups, seconds=245.0)


def large() -> Sample:
    """PPO on 1,024 GPUs: 128 machines of eight in eight regions."""
    kinds = ["A100-80GB", "L40S", "L4"]
    machines = [(f"r{r}-m{i:02d}", kinds[(r + i // 6) % 3], 8, f"region-{r}", f"region-{r}-z{i // 8}") for r in range(8) for i in range(16)]
    groups = [
        ("rollout", ["rollout"], slice(0, 512)),
        ("actor", ["actor_training"], slice(512, 768)),
        ("critic", ["critic_training", "critic_inference"], slice(768, 896)),
        ("score", ["reward_inference", "reference_inference"], slice(896, 960)),
    ]
    return _sample(_topology(machines, name="fleet"), algorithm="ppo", prompts=4096, responses=8, groups=groups, seconds=410.0)


def _topology(machines: list[tuple[str, str, int, str, str]], *, name: str) -> Topology:
    devices = []
    for machine, kind, count, _, _ in machines:
        title, memory, tflops, bandwidth = KINDS[kind]
        for i in range(count):
            devices.append(
                Device(
                    id=f"{machine}-{i}",
                    machine=machine,
                    vendor="cpu" if kind == "cpu" else "nvidia",
                    name=title,
                    device_class=kind,
                    uuid=f"GPU-{machine}-{i}",
                    memory_bytes=memory * GIB,
                    achieved_flops_per_s=Measured(value=tflops * 1e12 * (1 + 0.01 * (i % 3)), provenance="measured"),
                    memory_bandwidth_bytes_per_s=Measured(value=bandwidth * 1e9, provenance="spec"),
                )
            )
    places = {m: (region, zone) for m, _, _, region, zone in machines}
    names = [m for m, *_ in machines][:12]
    links = [
        Link(
            source=a,
            target=b,
            latency_s=1e-5 if a == b else 2e-4 if places[a] == places[b] else 0.03,
            bandwidth_bytes_per_s=2e11 if a == b else 1.25e10 if places[a] == places[b] else 1.25e8,
            provenance="measured",
            probe="ok",
        )
        for a in names
        for b in names
    ]
    return Topology(
        cluster=ClusterRef(kind="local" if len(machines) == 1 else "inventory", name=name),
        machines=[Machine(name=m, region=region, zone=zone, host_memory_bytes=512 * GIB, cpus=64) for m, _, _, region, zone in machines],
        devices=devices,
        links=links,
    )


def _strategy(devices: list[str], *, layers: int, batch: int, pp: int = 1, tp: int = 1) -> Strategy:
    dp = len(devices) // (pp * tp)
    share, extra = divmod(batch, dp)
    depth, more = divmod(layers, pp)
    return Strategy(
        dp=dp,
        pp=pp,
        tp=tp,
        layers=[depth + (j < more) for j in range(pp)],
        ranks=devices[: dp * pp * tp],
        local_batch_sequences=[share + (i < extra) for i in range(dp)],
        micro_batch_sequences=4,
    )


def _sample(
    topology: Topology, *, algorithm: str, prompts: int, responses: int, groups: list[tuple[str, list[str], slice]], seconds: float
) -> Sample:
    big = len(topology.devices) > 2
    job = Job(
        name="qwen3-4b-ppo" if big else "tiny-grpo",
        algorithm=algorithm,
        models={"actor": QWEN3},  # type: ignore[arg-type]
        reward="model" if algorithm == "ppo" else "rule",
        batch=Batch(prompts=prompts, responses_per_prompt=responses),
        prompt_tokens=Lengths(mean=400, max=1024),
        response_tokens=Lengths(mean=700, max=1024),
        iterations=8,
    )
    ids = [d.id for d in topology.devices]
    tasks = {}
    for _, names, part in groups:
        for task in names:
            pp, tp = (4, 2) if big and "training" in task else (1, 2 if big and task == "rollout" else 1)
            tasks[task] = _strategy(ids[part], layers=QWEN3.layers, batch=job.batch.sequences, pp=pp, tp=tp)
    used = {i for _, _, part in groups for i in ids[part]}
    plan = Plan(
        job=job.identity(),
        topology_fingerprint=topology.fingerprint,
        tasks=tasks,
        solver="auto",
        groups=[
            Group(name=n, tasks=t, devices=ids[part], reason=f"the fastest devices for {t[0].replace('_', ' ')} that share one region")  # type: ignore[arg-type]
            for n, t, part in groups
        ],
        idle_devices={i: "its link would slow every collective it joins" for i in ids if i not in used},
        reasons=["rollout and training are apart, because decoding is bound by memory bandwidth and training by compute"],
    )
    shares = {
        "rollout": 0.55,
        "reward_inference": 0.05,
        "reference_inference": 0.08,
        "critic_inference": 0.06,
        "actor_training": 0.28,
        "critic_training": 0.22,
    }
    start = {
        "rollout": 0.0,
        "reward_inference": 0.55,
        "reference_inference": 0.6,
        "critic_inference": 0.55,
        "actor_training": 0.68,
        "critic_training": 0.68,
    }
    times = {
        t: TaskTime(
            time_s=shares[t] * seconds,
            start_s=start[t] * seconds,
            terms={"compute": shares[t] * seconds * 0.7, "hbm": shares[t] * seconds * 0.2, "tp": shares[t] * seconds * 0.1},
        )
        for t in tasks
    }
    total = seconds
    memory = {}
    for group, names, part in groups:
        del group
        for n, device in enumerate(ids[part]):
            capacity = topology.devices[ids.index(device)].memory_bytes
            memory[device] = DeviceMemory(
                capacity_bytes=capacity,
                usable_bytes=int(capacity * 0.92),
                resident={f"{t}.weights": int(capacity * 0.2) for t in names},
                working={t: int(capacity * (0.3 + 0.01 * (n % 5))) for t in names},
            )
    prediction = Prediction(
        plan=plan.identity(),
        fidelity="calibrated",
        iteration_time_s=total,
        throughput_samples_per_s=job.batch.sequences / total,
        tasks=times,
        other_s={"weight_update": 0.04 * seconds},
        memory=memory,
        bound_s=0.6 * seconds,
        provenance={"achieved_flops_per_s": "measured", "memory_bandwidth_bytes_per_s": "spec", "latency_s": "measured"},
    )
    points = [Point(evaluations=10 * 4**i, seconds=0.002 * 4**i, cost_s=total * (1 + 1.5 * math.exp(-0.8 * i))) for i in range(7)]
    search = Search(
        solver="auto",
        status="feasible",
        seed=0,
        evaluations=200_000,
        seconds=10.0,
        trajectory=[*points, Point(evaluations=80_000, seconds=9.0, cost_s=total)],
        arms=[
            Arm(name=f"grouping {i}", evaluations=1000 * (i + 1), best_s=total * (1 + 0.03 * i) if i < 5 else None, rounds=3)
            for i in range(7)
        ],
        operators=[Operator(name="swap devices", tried=1200, improved=85), Operator(name="move a layer", tried=400, improved=12)],
    )
    throughput = _throughput(job, plan, prediction)
    return Sample(job, topology, plan, prediction, search, _deployment(topology, plan), throughput, _validation(topology, plan, prediction))


def _throughput(job: Job, plan: Plan, prediction: Prediction) -> Throughput:
    lines = []
    for step in range(1, 9):
        wobble = (2.5 if step == 1 else 1.0) * (1 + 0.04 * math.sin(step))
        by_task = {t: time.time_s * wobble * (1.3 if t == "rollout" else 0.9) for t, time in prediction.tasks.items()}
        by_task |= {"weight_update": 0.05 * prediction.iteration_time_s * wobble, "other": 0.03 * prediction.iteration_time_s}
        lines.append(
            Iteration(
                step=step,
                time_s=prediction.iteration_time_s * 1.18 * wobble,
                by_task_s=by_task,
                sequences=job.batch.sequences,
                tokens=job.batch.sequences * 1100,
                reward_mean=0.2 + 0.1 * step + 0.05 * math.sin(2 * step),
                loss=0.02 / step,
                kl=0.001 * step,
            )
        )
    return Throughput(
        header=Header(engine="verl", job=job.identity(), plan=plan.identity(), seed=0, versions={"verl": "0.9.1", "ray": "2.60.0"}),
        iterations=lines,
    )


def _deployment(topology: Topology, plan: Plan) -> Deployment:
    machine_of = {d.id: d.machine for d in topology.devices}
    return Deployment(
        plan=plan.identity(),
        topology_fingerprint=topology.fingerprint,
        cluster=topology.cluster.name,
        nodes=[RayNode(machine=m.name, node_id=f"node-{m.name}") for m in topology.machines],
        ranks=[
            RankPlacement(task=task, rank=i, machine=machine_of[d], device=d, device_uuid=f"GPU-{d}", ray_node_id=f"node-{machine_of[d]}")
            for task, s in plan.tasks.items()
            for i, d in enumerate(s.ranks)
        ],
        versions={"verl": "0.9.1", "torch": "2.13.0"},
    )


def _validation(topology: Topology, plan: Plan, prediction: Prediction) -> Validation:
    class_of = {d.id: d.device_class for d in topology.devices}

    def row(task: str, classes: str, predicted: float, factor: float) -> Row:
        measured = predicted * factor
        return Row(
            task=task,
            device_class=classes,
            predicted_s=predicted,
            measured_s=measured,
            measured_spread=0.06,
            iterations=7,
            error=(predicted - measured) / measured,
        )

    rows = [
        row(t, "+".join(sorted({class_of[d] for d in plan.tasks[t].ranks})), time.time_s, 1.3 if t == "rollout" else 0.9)
        for t, time in prediction.tasks.items()
    ]
    rows.append(row("weight_update", "", prediction.other_s["weight_update"], 1.18))
    return Validation(
        plan=plan.identity(),
        rows=rows,
        iteration=row("iteration", "all", prediction.iteration_time_s, 1.18),
        median_abs_error=0.12,
        bound=0.35,
        trend=[
            TrendPoint(version=f"{i}f3a9c2e", iteration_error=e, median_abs_error=abs(e) * 0.8)
            for i, e in enumerate((-0.6, -0.41, -0.2, 0.12))
        ],
        verdict="ok",
        suspect="rollout",
        notes=["other: measured 0.09 s beside the tasks, not predicted"],
    )
