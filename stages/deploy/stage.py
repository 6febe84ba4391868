"""The deploy stage: first everything that needs no cluster, then everything that waits, each with a deadline, then the proof."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from artifacts.deployment import Deployment, RankPlacement, RayNode
from artifacts.errors import HetrlError
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from stages.cluster import Cluster, open_cluster, refuse_inventory
from stages.cluster.lease import hold_cluster
from stages.contract import StageContext
from stages.deploy.engine import engine_configuration, spans
from stages.deploy.facts import HostFacts
from stages.deploy.faults import Report, raise_if_any
from stages.deploy.fit import check_documents, ranks_by_machine
from stages.deploy.host import check_hosts, look_here, uses_gpus
from stages.deploy.nodes import look_at_nodes
from stages.deploy.parameters import Parameters
from stages.deploy.placement import place_and_prove
from stages.deploy.steps import Steps


@dataclass(frozen=True)
class _Task:
    """What is deployed, and how."""

    job: Job
    topology: Topology
    plan: Plan
    parameters: Parameters
    disk_path: str

    @property
    def local(self) -> bool:
        return self.topology.cluster.kind == "local" and not self.parameters.address

    @property
    def machines(self) -> list[str]:
        """Machines the plan uses."""
        return sorted(ranks_by_machine(self.topology, self.plan))


def run(context: StageContext) -> dict[str, Any]:
    """Read job, topology and plan; write ``deployment``. Nothing of Ray is left running on a local cluster.

    A plan for a cluster that is only described is checked on paper, for the simulator: its deployment names no node and no rank.
    """
    parameters = context.parameters(Parameters)
    job, topology, plan = context.read(Job), context.read(Topology), context.read(Plan)
    task = _Task(job, topology, plan, parameters, disk_path=str(context.workdir.resolve()))
    if topology.cluster.kind == "inventory":
        return _on_paper(context, task)
    steps = Steps(context, total=5 if task.local else 6)

    steps.begin("preflight", "checking plan, job, topology and this machine")
    report, facts = _preflight(context, task)
    raise_if_any(report)

    name = topology.cluster.name
    steps.begin("lease", f"taking the lease on cluster {name}")
    with hold_cluster(context, name, wait_s=parameters.lease_wait_s):
        steps.begin("cluster", f"starting {len(topology.machines)} Ray nodes" if task.local else "joining the Ray cluster")
        with open_cluster(topology, address=parameters.address, workdir=context.workdir.resolve(),
                          deadline_s=parameters.start_deadline_s) as cluster:
            if not task.local:
                steps.begin("nodes", f"asking {len(task.machines)} nodes what they have")
                live, facts = _look(cluster, task)
                raise_if_any(live)
                report += live
            steps.begin("placement", f"placing {sum(len(g.devices) for g in plan.groups)} ranks on {len(task.machines)} machines")
            ranks = place_and_prove(cluster, plan, parameters, tell=context.log)
            steps.begin("teardown", "every rank is where the plan puts it; giving the devices back")
        seconds = steps.end("deployed")
    context.write(_deployment(task, cluster, ranks, report, facts, seconds))
    return {"ranks": len(ranks), "devices": len({r.device for r in ranks}), "nodes": len(cluster.node_ids),
            **{f"{step}_s": round(value, 2) for step, value in seconds.items()}, "total_s": round(sum(seconds.values()), 2)}


def _on_paper(context: StageContext, task: _Task) -> dict[str, Any]:
    if task.parameters.address:
        refuse_inventory(task.topology)
    context.progress(0, 1, f"checking plan and job; cluster {task.topology.cluster.name} is described, not at hand: to be simulated")
    report = check_documents(task.job, task.topology, task.plan, planned_for=_planned_for(context),
                             cpus_per_rank=task.parameters.cpus_per_rank)
    raise_if_any(report)
    context.write(Deployment(
        plan=task.plan.identity(), topology_fingerprint=task.topology.fingerprint, cluster=task.topology.cluster.name, nodes=[], ranks=[],
        engine=_engine(task) | {"simulated": True}, checks=list(report.checks), deployed_at=datetime.now(UTC)))
    return {"simulated": True, "devices": sum(len(g.devices) for g in task.plan.groups)}


def _preflight(context: StageContext, task: _Task) -> tuple[Report, dict[str, HostFacts]]:
    """Everything that can be known before Ray is touched. On a local cluster this host is all the machines."""
    report = check_documents(task.job, task.topology, task.plan, planned_for=_planned_for(context),
                             cpus_per_rank=task.parameters.cpus_per_rank)
    if not task.local:
        return report, {}
    here = look_here(task.job, task.topology, task.plan, disk_path=task.disk_path)
    facts = dict.fromkeys(task.machines, here)
    return report + check_hosts(task.job, task.topology, task.plan, facts, min_disk_bytes=task.parameters.min_disk_bytes), facts


def _look(cluster: Cluster, task: _Task) -> tuple[Report, dict[str, HostFacts]]:
    facts = look_at_nodes(cluster, task.machines, task.job, disk_path="/tmp", ask_nvml=uses_gpus(task.topology, task.plan),
                          deadline_s=task.parameters.check_deadline_s)
    return check_hosts(task.job, task.topology, task.plan, facts, min_disk_bytes=task.parameters.min_disk_bytes), facts


def _planned_for(context: StageContext) -> Topology | None:
    """The topology the plan was made for, to say what differs; None where it cannot be read any more."""
    try:
        made_from = context.store.manifest(context.input_ref("plan")).inputs.get("topology")
        return context.store.read(made_from, Topology) if made_from else None
    except HetrlError:
        return None


def _deployment(task: _Task, cluster: Cluster, ranks: list[RankPlacement], report: Report, facts: dict[str, HostFacts],
                seconds: dict[str, float]) -> Deployment:
    first = next(iter(facts.values()))
    return Deployment(
        plan=task.plan.identity(), topology_fingerprint=task.topology.fingerprint, cluster=task.topology.cluster.name,
        address="" if task.local else cluster.address,
        nodes=[RayNode(machine=m, node_id=node, resources=cluster.resources_by_machine[m]) for m, node in cluster.node_ids.items()],
        ranks=ranks, engine=_engine(task), versions={"python": first.python, **first.versions}, checks=list(report.checks),
        deployed_at=datetime.now(UTC), seconds=seconds)


def _engine(task: _Task) -> dict[str, str | int | float | bool]:
    machine_of = {d.id: d.machine for d in task.topology.devices}
    where = {f"{name}.machines": spans([machine_of[d] for d in s.ranks]) for name, s in task.plan.tasks.items()}
    return engine_configuration(task.job, task.topology, task.plan) | where
