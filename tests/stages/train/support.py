"""Small topologies, plans and deployments for tests of the train stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from artifacts.deployment import Deployment, RankPlacement, RayNode
from artifacts.job import Job, load_job
from artifacts.plan import Group, Plan, Strategy
from artifacts.topology import ClusterRef, Device, Machine, Measured, Topology

JOBS = Path(__file__).parents[3] / "infra" / "jobs"


def job(name: str = "tiny-grpo", *overrides: str) -> Job:
    return load_job(str(JOBS / f"{name}.yaml"), list(overrides))


def topology(*devices_of_machine: int, vendor: str = "cpu") -> Topology:
    """Machines m0, m1, … with so many devices each: m0-d0, m0-d1, …"""
    rate = Measured(value=1e10, provenance="assumed")
    machines = [Machine(name=f"m{m}", host_memory_bytes=2**33, cpus=max(4, 2 * n)) for m, n in enumerate(devices_of_machine)]
    devices = [
        Device(id=f"m{m}-d{d}", machine=f"m{m}", vendor=vendor, name="test CPU", device_class=f"class{m}", uuid=f"uuid-{m}-{d}",
               memory_bytes=2**32, achieved_flops_per_s=rate, memory_bandwidth_bytes_per_s=rate)
        for m, n in enumerate(devices_of_machine) for d in range(n)
    ]
    return Topology(cluster=ClusterRef(kind="local", name="local"), machines=machines, devices=devices)


def strategy(ranks: list[str], *, dp: int = 1, pp: int = 1, tp: int = 1, layers: list[int] | None = None, shares: list[int] | None = None,
             micro: int = 4, total: int = 32) -> Strategy:
    return Strategy(dp=dp, pp=pp, tp=tp, layers=layers or [4 // pp] * pp, ranks=ranks,
                    local_batch_sequences=shares or [total // dp] * dp, micro_batch_sequences=micro)


def grpo_plan(job: Job, topology: Topology, ranks: list[str], **layout: Any) -> Plan:
    """Everything in one group; the rollout deals evenly over all ranks."""
    total = job.batch.sequences
    training = strategy(ranks, total=total, **layout)
    each, rest = divmod(total, len(ranks))
    rollout = strategy(ranks, dp=len(ranks), layers=[4], shares=[each + (i < rest) for i in range(len(ranks))])
    return Plan(
        job=job.identity(), topology_fingerprint=topology.fingerprint,
        groups=[Group(name="all", tasks=["rollout", "reference_inference", "actor_training"], devices=ranks)],
        tasks={"rollout": rollout, "reference_inference": training, "actor_training": training},
    )


def deployment(plan: Plan, topology: Topology) -> Deployment:
    ranks = [
        RankPlacement(task=task, rank=rank, machine=topology.device(device).machine, device=device, device_uuid=topology.device(device).uuid,
                      ray_node_id="")
        for task, strategy in plan.tasks.items() for rank, device in enumerate(strategy.ranks)
    ]
    return Deployment(plan=plan.identity(), topology_fingerprint=topology.fingerprint, cluster=topology.cluster.name,
                      nodes=[RayNode(machine=m.name) for m in topology.machines], ranks=ranks)


def ppo_plan(job: Job, topology: Topology, ranks: list[str], critic_ranks: list[str], *, critic: dict[str, Any] | None = None,
             **layout: Any) -> Plan:
    """The actor's tasks in one group, the critic's in another."""
    base = grpo_plan(job, topology, ranks, **layout)
    value = strategy(critic_ranks, total=job.batch.sequences, **(critic or {}))
    return base.model_copy(update={
        "groups": [base.groups[0].model_copy(update={"name": "actor"}),
                   Group(name="critic", tasks=["critic_inference", "critic_training"], devices=critic_ranks)],
        "tasks": {**base.tasks, "critic_inference": value, "critic_training": value},
    })


def rollout_apart(plan: Plan, ranks: list[str], *, dp: int = 1, tp: int = 1, shares: list[int] | None = None) -> Plan:
    """The same plan with the rollout in a group of its own, on other devices."""
    total = sum(plan.tasks["rollout"].local_batch_sequences)
    first, *others = plan.groups
    away = strategy(ranks, dp=dp, tp=tp, layers=[4], shares=shares, total=total)
    return plan.model_copy(update={
        "groups": [first.model_copy(update={"tasks": [task for task in first.tasks if task != "rollout"]}),
                   Group(name="rollout", tasks=["rollout"], devices=ranks), *others],
        "tasks": {**plan.tasks, "rollout": away},
    })


def with_reward(plan: Plan, ranks: list[str], *, beside: str = "", **layout: Any) -> Plan:
    """The same plan with a reward model: in a group of its own, or in group ``beside``."""
    total = sum(plan.tasks["rollout"].local_batch_sequences)
    groups = [g.model_copy(update={"tasks": [*g.tasks, "reward_inference"]}) if g.name == beside else g for g in plan.groups]
    if not beside:
        groups.append(Group(name="reward", tasks=["reward_inference"], devices=ranks))
    return plan.model_copy(update={"groups": groups, "tasks": {**plan.tasks, "reward_inference": strategy(ranks, total=total, **layout)}})
