"""A run worked out by hand: rollout on two device classes, reference inference and actor training on a third device.

    task                 predicted   measured (three counted iterations)   median   (predicted − median) / median
    rollout              4.0 s       5, 6, 7                               6.0      −1/3
    reference_inference  1.0 s       1, 1, 1                               1.0       0
    actor_training       3.0 s       2, 2.5, 3                             2.5      +0.2
    weight_update        0.5 s       0.5, 0.5, 0.5                         0.5       0
    reward, other        –           0.25 + (0.15, 0.25, 0.35)             0.5      not predicted
    iteration            8.5 s       9, 10, 11                             10       −0.15

A first iteration ten times as slow is the warm-up.
"""

from __future__ import annotations

from typing import Any

from artifacts.calibration import Calibration, Factor
from artifacts.deployment import Deployment, RankPlacement, RayNode
from artifacts.job import Batch, Job, Lengths
from artifacts.model_spec import ModelSpec
from artifacts.plan import Group, Plan, Strategy
from artifacts.prediction import Prediction, TaskTime
from artifacts.throughput import Header, Iteration, Throughput
from artifacts.topology import ClusterRef, Device, Machine, Measured, Topology

MODEL = ModelSpec(name="toy", layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=128, vocab=512)
JOB = Job(
    name="worked",
    models={"actor": MODEL},
    batch=Batch(prompts=4, responses_per_prompt=2),
    prompt_tokens=Lengths(mean=8, max=16),
    response_tokens=Lengths(mean=8, max=16),
)


def _device(name: str, device_class: str) -> Device:
    rate = Measured(value=1e9, provenance="measured")
    return Device(
        id=name,
        machine="m",
        vendor="cpu",
        name="CPU",
        device_class=device_class,
        uuid=name,
        memory_bytes=2**30,
        achieved_flops_per_s=rate,
        memory_bandwidth_bytes_per_s=rate,
    )


TOPOLOGY = Topology(
    cluster=ClusterRef(kind="local", name="local"),
    machines=[Machine(name="m", host_memory_bytes=2**34, cpus=3)],
    devices=[_device("f0", "fast"), _device("s0", "slow"), _device("f1", "fast")],
)


def _strategy(*ranks: str) -> Strategy:
    return Strategy(
        dp=len(ranks),
        pp=1,
        tp=1,
        layers=[4],
        ranks=list(ranks),
        local_batch_sequences=[8 // len(ranks)] * len(ranks),
        micro_batch_sequences=2,
    )


PLAN = Plan(
    job=JOB.identity(),
    topology_fingerprint=TOPOLOGY.fingerprint,
    groups=[
        Group(name="gen", tasks=["rollout"], devices=["f0", "s0"]),
        Group(name="train", tasks=["reference_inference", "actor_training"], devices=["f1"]),
    ],
    tasks={"rollout": _strategy("f0", "s0"), "reference_inference": _strategy("f1"), "actor_training": _strategy("f1")},
)

PREDICTION = Prediction(
    plan=PLAN.identity(),
    fidelity="calibrated",
    iteration_time_s=8.5,
    throughput_samples_per_s=8 / 8.5,
    bound_s=1.0,
    tasks={
        "rollout": TaskTime(time_s=4.0),
        "reference_inference": TaskTime(time_s=1.0, start_s=4.0),
        "actor_training": TaskTime(time_s=3.0, start_s=5.0),
    },
    other_s={"weight_update": 0.5},
)

DEPLOYMENT = Deployment(
    plan=PLAN.identity(),
    topology_fingerprint=TOPOLOGY.fingerprint,
    cluster="local",
    nodes=[RayNode(machine="m")],
    ranks=[RankPlacement(task="rollout", rank=0, machine="m", device="f0", device_uuid="f0", ray_node_id="n")],
)

USED = Calibration(
    runs=2,
    factors=[
        Factor(task="rollout", device_class="fast", factor=2.0, observations=5),
        Factor(task="actor_training", device_class="fast", factor=0.5, observations=5),
        Factor(task="critic_training", device_class="fast", factor=3.0, observations=5),
    ],
)
"""What an earlier run had learned: nothing of rollout on the slow class, and a task this run does not have."""


def _iteration(step: int, time_s: float, **by_task: float) -> Iteration:
    return Iteration(step=step, time_s=time_s, by_task_s=by_task, sequences=8, tokens=128, reward_mean=0.1 * step, loss=1.0 / step)


ITERATIONS = [
    _iteration(1, 100.0, rollout=60, reference_inference=10, actor_training=25, weight_update=5, reward=0.25, other=0.25),
    _iteration(2, 9.0, rollout=5, reference_inference=1, actor_training=2, weight_update=0.5, reward=0.25, other=0.15),
    _iteration(3, 10.0, rollout=6, reference_inference=1, actor_training=2.5, weight_update=0.5, reward=0.25, other=0.25),
    _iteration(4, 11.0, rollout=7, reference_inference=1, actor_training=3, weight_update=0.5, reward=0.25, other=0.35),
]


def throughput(iterations: list[Iteration] = ITERATIONS, **header: Any) -> Throughput:
    return Throughput(
        header=Header(**({"engine": "verl", "job": JOB.identity(), "plan": PLAN.identity(), "seed": 0} | header)), iterations=iterations
    )
