"""Whether a plan can be launched on a topology, from the documents alone: nothing is started or asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from artifacts.catalog.engines import resolve_engine
from artifacts.errors import ClusterChanged, HetrlError, InfeasiblePlan, InputError
from artifacts.job import ROLE_OF_TASK, TRAINING_TASKS, Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from artifacts.units import show_bytes
from stages.deploy.changes import differences
from stages.deploy.faults import Fault, Report, checked

_AGAIN = "run schedule again"


def check_documents(job: Job, topology: Topology, plan: Plan, *, planned_for: Topology | None = None, cpus_per_rank: float = 1) -> Report:
    """All checks that need no cluster. ``planned_for`` is the topology the plan was made for, where it can still be read."""
    report = checked("plan belongs to the topology", list(_fingerprint(topology, plan, planned_for)))
    report += checked("plan belongs to the job", list(_job(job, plan)))
    report += checked("machines have the devices", list(_devices(topology, plan)))
    report += checked("machines have the CPUs", list(_cpus(topology, plan, cpus_per_rank)), "shared" if _shared(topology) else "")
    report += checked("plan is of the model", list(_shapes(job, plan)))
    report += checked("constraints are kept", list(_constraints(job, topology, plan)))
    report += checked("devices compute in the job's precision", list(_precision(job, topology, plan)), job.precision)
    report += checked("weights and optimizer fit the devices", list(_memory(job, topology, plan)))
    return report


def ranks_by_machine(topology: Topology, plan: Plan) -> Counter[str]:
    """Machine → devices the plan uses there. A device the topology lacks counts for the machine its id begins with."""
    known = {d.id: d.machine for d in topology.devices}
    return Counter(m for g in plan.groups for d in g.devices if (m := known.get(d) or _presumed_machine(topology, d)))


def _presumed_machine(topology: Topology, device: str) -> str:
    return max((m.name for m in topology.machines if device.startswith(m.name)), key=len, default="")


def _fingerprint(topology: Topology, plan: Plan, planned_for: Topology | None) -> Iterator[Fault]:
    if plan.topology_fingerprint == topology.fingerprint:
        return
    if planned_for is not None and planned_for.fingerprint == plan.topology_fingerprint:
        what = "; ".join(differences(planned_for, topology))
    else:
        what = f"it was made for topology {plan.topology_fingerprint[:12]}, this is {topology.fingerprint[:12]}"
    yield Fault(ClusterChanged, f"the plan is for another state of cluster {topology.cluster.name}: {what}", _AGAIN)


def _job(job: Job, plan: Plan) -> Iterator[Fault]:
    if plan.job != job.identity():
        yield Fault(InputError, f"the plan was made for another job ({plan.job[:12]}, this is {job.identity()[:12]})", _AGAIN)
    wanted, planned = set(job.tasks()), set(plan.tasks)
    if wanted != planned:
        parts = [f"lacks {', '.join(sorted(wanted - planned))}"] if wanted - planned else []
        parts += [f"has {', '.join(sorted(planned - wanted))} too many"] if planned - wanted else []
        yield Fault(InputError, f"the plan {' and '.join(parts)} for {job.algorithm} job {job.name}", _AGAIN)


def _devices(topology: Topology, plan: Plan) -> Iterator[Fault]:
    """Per machine, never in sum: six GPUs on two machines are not three on each."""
    known = {d.id for d in topology.devices}
    missing = [d for g in plan.groups for d in g.devices if d not in known]
    there = Counter(d.machine for d in topology.devices)
    kind: type[HetrlError] = InfeasiblePlan if plan.topology_fingerprint == topology.fingerprint else ClusterChanged
    for machine, asked in sorted(ranks_by_machine(topology, plan).items()):
        absent = [d for d in missing if _presumed_machine(topology, d) == machine]
        if absent:
            yield Fault(kind, f"machine {machine} has {there[machine]} devices, the plan asks {asked}: there is no {', '.join(absent)}",
                        _AGAIN)
    lost = [d for d in missing if not _presumed_machine(topology, d)]
    if lost:
        yield Fault(kind, f"no machine has {', '.join(lost)}", _AGAIN)


def _shared(topology: Topology) -> bool:
    """Local Ray nodes stand for machines on one host: CPUs are declared, the host's are shared."""
    return topology.cluster.kind == "local"


def _cpus(topology: Topology, plan: Plan, cpus_per_rank: float) -> Iterator[Fault]:
    if _shared(topology):
        return
    for name, ranks in sorted(ranks_by_machine(topology, plan).items()):
        machine = topology.machine(name)
        if ranks * cpus_per_rank > machine.cpus:
            yield Fault(InfeasiblePlan, f"machine {name} has {machine.cpus} CPUs, its {ranks} ranks ask {ranks * cpus_per_rank:g} "
                        f"({cpus_per_rank:g} each)", "lower deploy's cpus_per_rank, or plan fewer ranks there")


def _shapes(job: Job, plan: Plan) -> Iterator[Fault]:
    for task, s in plan.tasks.items():
        model = job.model(ROLE_OF_TASK[task])
        if sum(s.layers) != model.layers:
            yield Fault(InfeasiblePlan, f"{task}: stages {s.layers} hold {sum(s.layers)} layers, {model.name} has {model.layers}", _AGAIN)
        if model.heads % s.tp:
            yield Fault(InfeasiblePlan, f"{task}: tp {s.tp} does not divide the {model.heads} heads of {model.name}", _AGAIN)
        if sum(s.local_batch_sequences) != job.batch.sequences:
            yield Fault(InfeasiblePlan, f"{task}: the replicas take {sum(s.local_batch_sequences)} sequences, the batch has "
                        f"{job.batch.sequences}", _AGAIN)


def _constraints(job: Job, topology: Topology, plan: Plan) -> Iterator[Fault]:
    machine_of = {d.id: topology.machine(d.machine) for d in topology.devices}
    counts = Counter(d.machine for d in topology.devices)
    for task, machines in job.constraints.pin.items():
        strategy = plan.tasks.get(task)
        outside = sorted({machine_of[d].name for d in strategy.ranks if d in machine_of} - set(machines)) if strategy else []
        if strategy and outside:
            room = ", ".join(f"{m} has {counts[m]} devices" for m in machines)
            yield Fault(InfeasiblePlan, f"{task} is pinned to {', '.join(machines)}, the plan puts it on {', '.join(outside)} too "
                        f"({len(strategy.ranks)} ranks; {room})", _AGAIN)
    for task, fixed in job.constraints.fix.items():
        for degree, value in fixed.items():
            if task in plan.tasks and getattr(plan.tasks[task], degree) != value:
                planned = getattr(plan.tasks[task], degree)
                yield Fault(InfeasiblePlan, f"{task}: the job fixes {degree} {value}, the plan has {planned}", _AGAIN)
    limits = job.constraints
    for task, strategy in plan.tasks.items():
        machines_here = {m.name: m.region for d in strategy.ranks if (m := machine_of.get(d))}
        bad = sorted(name for name, region in machines_here.items() if region in limits.forbid_regions)
        if bad:
            yield Fault(InfeasiblePlan, f"{task} uses {', '.join(bad)} in a forbidden region", _AGAIN)
        out = sorted(name for name, region in machines_here.items() if limits.keep_data_in and region not in limits.keep_data_in)
        if out:
            yield Fault(InfeasiblePlan, f"{task} uses {', '.join(out)} outside {', '.join(limits.keep_data_in)}, which data may not leave "
                        "(keep_data_in)", _AGAIN)
        forbidden = set(limits.forbid_devices)
        named = sorted(d for d in strategy.ranks if {d, machine_of[d].name if d in machine_of else ""} & forbidden)
        if named:
            yield Fault(InfeasiblePlan, f"{task} uses {', '.join(named)}, which forbid_devices leaves out", _AGAIN)
    used = sum(len(g.devices) for g in plan.groups)
    if limits.max_devices is not None and used > limits.max_devices:
        yield Fault(InfeasiblePlan, f"the plan uses {used} devices, max_devices allows {limits.max_devices}", _AGAIN)


def _precision(job: Job, topology: Topology, plan: Plan) -> Iterator[Fault]:
    used = {d for g in plan.groups for d in g.devices}
    unable = [d for d in topology.devices if d.id in used and job.precision not in d.dtypes]
    if unable:
        names = ", ".join(f"{d.id} ({d.name}: {'/'.join(d.dtypes)})" for d in unable)
        yield Fault(InfeasiblePlan, f"{job.precision} cannot be computed on {names}",
                    f"set precision to one they know, or {_AGAIN} without them")


def _memory(job: Job, topology: Topology, plan: Plan) -> Iterator[Fault]:
    """A floor: weights, gradients and optimizer of what a device holds at once. The scheduler's prediction has the rest."""
    if job.engine.offload:
        return
    devices = {d.id: d for d in topology.devices}
    held: Counter[str] = Counter()
    element = 4 if job.precision == "fp32" else 2
    try:
        engine = resolve_engine(job.engine, {devices[d].vendor for g in plan.groups for d in g.devices if d in devices})
    except InputError as error:
        yield Fault(InputError, error.message, error.fix)
        return
    for task, s in plan.tasks.items():
        trained = {ROLE_OF_TASK[t] for t in plan.group_of(task).tasks if t in TRAINING_TASKS}
        if task not in TRAINING_TASKS and task != "rollout" and ROLE_OF_TASK[task] in trained:
            continue
        model = job.model(ROLE_OF_TASK[task])
        if sum(s.layers) != model.layers:
            continue
        for i, device in enumerate(s.ranks):
            stage = i // s.tp % s.pp
            params = model.stage_params(layers=s.layers[stage], first=stage == 0, last=stage == s.pp - 1) / s.tp
            per_param: float = element
            if task in TRAINING_TASKS:
                optimizer = 8 if job.precision == "fp32" else 12
                per_param += engine.gradient_bytes + (optimizer / s.dp if engine.optimizer_sharded else optimizer)
            held[device] += int(params * per_param)
    for id_, need in sorted(held.items()):
        if id_ in devices and need > devices[id_].memory_bytes:
            yield Fault(InfeasiblePlan, f"device {id_} has {show_bytes(devices[id_].memory_bytes)}, weights and optimizer alone take "
                        f"{show_bytes(need)}", f"set engine.offload, or {_AGAIN}")
