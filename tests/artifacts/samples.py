"""Small valid documents, one of each kind, and hypothesis strategies around them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from artifacts.base import Document
from artifacts.calibration import Calibration, Factor
from artifacts.catalog import models
from artifacts.checkpoint import Checkpoint, CheckpointFile
from artifacts.deployment import Check, Deployment, RankPlacement, RayNode
from artifacts.invocation import StageRequest
from artifacts.job import Batch, Job, Lengths
from artifacts.manifest import FileEntry, LeaseRecord, Manifest, Producer, VersionRef
from artifacts.plan import Group, Plan, Strategy
from artifacts.plan_diff import PlanDiff, task_moves
from artifacts.prediction import DeviceMemory, Prediction, TaskTime
from artifacts.search import Arm, Operator, Point, Search
from artifacts.throughput import Header, Iteration, Replica, Throughput
from artifacts.topology import ClusterRef, ComputePoint, Device, Link, Machine, Measured, Topology
from artifacts.validation import Row, TrendPoint, Validation

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SHA = "0" * 64


def job(**changes: object) -> Job:
    fields: dict[str, object] = {
        "name": "tiny", "models": {"actor": models()["tiny-qwen3"]}, "batch": Batch(prompts=8, responses_per_prompt=4),
        "prompt_tokens": Lengths(mean=24, max=64), "response_tokens": Lengths(mean=12, max=16)}
    return Job(**(fields | changes))  # type: ignore[arg-type]


def device(index: int = 0, machine: str = "m0", **changes: object) -> Device:
    fields: dict[str, object] = {
        "id": f"{machine}.{index}", "machine": machine, "vendor": "nvidia", "name": "A100", "device_class": "A100", "uuid": f"GPU-{machine}-{index}",
        "memory_bytes": 40 * 2**30, "achieved_flops_per_s": Measured(value=2e14, provenance="measured", spread=0.02),
        "memory_bandwidth_bytes_per_s": Measured(value=1.4e12, provenance="spec", source="data sheet"),
        "compute_curve": [ComputePoint(tokens=64, width=4096, flops_per_s=1e14)]}
    return Device(**(fields | changes))  # type: ignore[arg-type]


def topology(devices: int = 2) -> Topology:
    return Topology(cluster=ClusterRef(kind="inventory", name="pair"), machines=[Machine(name="m0", region="r", host_memory_bytes=2**38, cpus=64)],
                    devices=[device(i) for i in range(devices)], basis={"A100.flops": 2e14}, measured_at=NOW,
                    links=[Link(source="m0", target="m0", latency_s=1e-5, bandwidth_bytes_per_s=2e11, provenance="assumed")])


def plan() -> Plan:
    fleet = topology()
    strategy = Strategy(dp=1, pp=2, tp=1, layers=[3, 1], ranks=["m0.0", "m0.1"], local_batch_sequences=[32], micro_batch_sequences=4)
    rollout = Strategy(dp=2, pp=1, tp=1, layers=[4], ranks=["m0.0", "m0.1"], local_batch_sequences=[20, 12], micro_batch_sequences=4)
    return Plan(job=job().identity(), topology_fingerprint=fleet.fingerprint, solver="sha-ea", reasons=["both devices are needed"],
                groups=[Group(name="g0", tasks=["rollout", "reference_inference", "actor_training"], devices=["m0.0", "m0.1"])],
                tasks={"rollout": rollout, "reference_inference": strategy, "actor_training": strategy})


def documents() -> list[Document]:
    """One of each kind in the registry."""
    priced = {"rollout": TaskTime(time_s=1.0, terms={"compute": 0.4, "hbm": 0.6}), "reference_inference": TaskTime(time_s=0.2, start_s=1.0),
              "actor_training": TaskTime(time_s=2.0, start_s=1.2)}
    row = Row(task="rollout", device_class="A100", predicted_s=1.0, measured_s=1.25, iterations=4, error=-0.2)
    return [
        job(), topology(), plan(),
        Prediction(plan=plan().identity(), fidelity="calibrated", iteration_time_s=3.4, throughput_samples_per_s=9.4, tasks=priced,
                   other_s={"weight_update": 0.2}, bound_s=2.0, provenance={"A100.flops": "measured"},
                   memory={"m0.0": DeviceMemory(capacity_bytes=2**35, usable_bytes=2**34, resident={"actor": 5}, working={"rollout": 7})}),
        Search(solver="sha-ea", status="feasible", seed=0, evaluations=10, seconds=0.5, trajectory=[Point(evaluations=1, seconds=0.1, cost_s=4.0)],
               arms=[Arm(name="all together", evaluations=10, best_s=3.4)], operators=[Operator(name="swap", tried=3, improved=1)]),
        Deployment(plan=plan().identity(), topology_fingerprint=topology().fingerprint, cluster="pair", nodes=[RayNode(machine="m0")],
                   ranks=[RankPlacement(task="rollout", rank=0, machine="m0", device="m0.0", device_uuid="GPU-m0-0", ray_node_id="ab")],
                   engine={"tp": 1}, versions={"verl": "0.9.1"}, checks=[Check(name="disk", ok=True)], deployed_at=NOW),
        throughput(),
        Checkpoint(step=3, format="hf", files=[CheckpointFile(name="model.safetensors", sha256=SHA, size_bytes=7)]),
        Validation(plan=plan().identity(), rows=[row], iteration=row, median_abs_error=0.2, bound=0.35, verdict="ok",
                   trend=[TrendPoint(version="a", iteration_error=0.1, median_abs_error=0.2)]),
        Calibration(factors=[Factor(device_class="A100", task="rollout", factor=1.25, observations=4)], overhead_s=0.1, runs=1),
        Manifest(pipeline="hetrl", stage="train", version="v1", files={"a.json": FileEntry(key="a.json", sha256=SHA, size_bytes=1, identity=SHA)},
                 inputs={"job": VersionRef(stage="job", version="j1")}, producer=Producer(hetrl="0", code_digest="c", started_at=NOW, finished_at=NOW)),
        PlanDiff(before="schedule@a", after="schedule@b", moves=task_moves(job(), plan(), plan()), before_s=2.0, stays_s=3.0, after_s=2.5,
                 restart_s=60.0),
        LeaseRecord(cluster="pair", epoch=1, holder="somebody", run_id="r", taken_at=NOW, expires_at=NOW),
        StageRequest(stage="train", store="file:///tmp/s", pipeline="hetrl", version="v1", inputs={"job": VersionRef(stage="job", version="j1")}),
    ]


def throughput() -> Throughput:
    return Throughput(header=Header(engine="verl", job="j", plan="p", seed=0, devices={"m0.0": "A100"}),
                      iterations=[Iteration(step=i, time_s=2.0 + i, by_task_s={"rollout": 1.0, "other": 1.0 + i}, sequences=32, tokens=900,
                                            reward_mean=0.1 * i, loss=1.0, replicas={"rollout": [Replica(sequences=32, tokens=900, time_s=1.0)]})
                                  for i in (1, 2)])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of one to three groups of devices with any layout that is consistent."""
    tasks = ["rollout", "reference_inference", "actor_training"]
    cuts = draw(st.integers(1, 3))
    groups, strategies, used = [], {}, 0
    for index in range(cuts):
        mine = tasks[index :] if index == cuts - 1 else [tasks[index]]
        dp, pp, tp = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)))
        devices = [f"d{used + i}" for i in range(dp * pp * tp)]
        used += len(devices)
        groups.append(Group(name=f"g{index}", tasks=mine, devices=devices, reason=draw(st.text(max_size=20))))  # type: ignore[arg-type]
        for task in mine:
            strategies[task] = Strategy(dp=dp, pp=pp, tp=tp, layers=draw(st.lists(st.integers(1, 80), min_size=pp, max_size=pp)),
                                        ranks=draw(st.permutations(devices)), micro_batch_sequences=draw(st.integers(1, 8)),
                                        local_batch_sequences=draw(st.lists(st.integers(0, 64), min_size=dp, max_size=dp)))
    return Plan(job="j", topology_fingerprint="f", groups=groups, tasks=strategies)  # type: ignore[arg-type]
