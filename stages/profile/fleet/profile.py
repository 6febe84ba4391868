"""The topology of a live Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from artifacts.errors import HetrlError, RunnerUnavailable, StageTimeout, from_kind
from artifacts.topology import ClusterRef, Machine, Topology, Unreachable
from stages.cluster.live import gcs_address, reach
from stages.profile.assemble import build_devices, slowed
from stages.profile.draft import Draft
from stages.profile.fleet.findings import Findings, Said, decode
from stages.profile.fleet.links import fleet_links
from stages.profile.fleet.place import answers_of, placed_devices, stragglers
from stages.profile.fleet.rounds import Budget
from stages.profile.fleet.survey import survey_sites
from stages.profile.host import safe_name
from stages.profile.probes.launch import Probe, ProbeFailed
from stages.profile.settle import settle

REACH_S = 30.0
DEVICE_PART, LINK_PART = 0.75, 0.25
BUSY_PART = 0.3
HELPERS = 6
"""CPUs beside the ranks' own with which a training was seen to run; with none it had not begun after six minutes."""

Report = Callable[[float, float, str], None]


@dataclass(frozen=True)
class RaySource:
    """Which cluster, and how to profile it.

    ``address``: ``host:port`` of its GCS, or ``auto``. ``name``: what it is called from profile to profile; "": after the address.
    ``seconds``: of measuring, for each device and (a quarter of it) for each direction of a link. ``devices``: CPU devices of a machine
    without GPUs that declares none. ``network_s``: what the network may take in all, before pairs are sampled.
    """

    address: str
    name: str = ""
    kind: Literal["ray", "lab"] = "ray"
    seconds: float = 6.0
    devices: int | None = None
    strict: bool = False
    network_s: float = 200.0
    deadline_s: float = 900.0

    @property
    def cluster_name(self) -> str:
        return safe_name(self.name or self.address.removeprefix("ray://").removeprefix("ray:"))


def profile_ray(address: str, *, earlier: Sequence[Topology] = (), name: str = "", kind: Literal["ray", "lab"] = "ray",
                seconds: float = 6.0, devices: int | None = None, strict: bool = False, network_s: float = 200.0,
                report: Report = lambda *_: None) -> Topology:
    """The topology of the Ray cluster at ``address``, its rates anchored in ``earlier`` topologies of it (newest first).

    Raises:
        RunnerUnavailable: Ray is not installed here, or the cluster cannot be joined from here.
        StageTimeout: nothing answers at the address, or no device of it could be measured.
        HetrlError: with ``strict``, when anything could not be reached, measured, or summed right.
    """
    source = RaySource(address=address, name=name, kind=kind, seconds=seconds, devices=devices, strict=strict, network_s=network_s)
    _, topology = settle(lambda: draft_ray(source, report=report), list(earlier))
    return topology


def draft_ray(source: RaySource, *, report: Report = lambda *_: None) -> Draft:
    """One survey of the cluster. Raises as :func:`profile_ray` does."""
    findings, ended = _survey(source, report)
    draft = to_draft(findings, source, notes=[f"the survey ended early: {ended}"] if ended else [])
    faults = [*(f"{u.machine}: {u.reason}" for u in draft.unreachable), *_faults(findings), *([ended] if ended else [])]
    if source.strict and faults:
        raise HetrlError(f"strict profile of {draft.cluster.name}: {'; '.join(faults[:6])}",
                         fix="mend it, or profile without strict to leave out what cannot be measured", details={"faults": faults})
    if not draft.devices:
        raise StageTimeout(f"no device of {draft.cluster.name} could be measured: {'; '.join(faults[:6]) or 'it has no machine'}",
                           fix="see whether its nodes are alive and hetrl is installed there")
    return draft


def _survey(source: RaySource, report: Report) -> tuple[Findings, str]:
    """What was found out, and why the survey ended before it was done, or ""."""
    if find_spec("ray") is None:
        raise RunnerUnavailable("Ray is not installed here", fix="pip install 'hetrl[engine-cpu]' (or engine-cuda)")
    address = gcs_address(source.address)
    reach(address, deadline_s=REACH_S)
    findings = Findings()
    budget = Budget(bandwidth_s=max(0.2, source.seconds * LINK_PART), latency_s=max(0.1, source.seconds * LINK_PART / 5),
                    network_s=source.network_s)
    arguments = ["--address", address, "--device-seconds", f"{source.seconds * DEVICE_PART:.3f}",
                 "--bandwidth-seconds", f"{budget.bandwidth_s:.3f}", "--latency-seconds", f"{budget.latency_s:.3f}",
                 "--network-seconds", f"{budget.network_s:.3f}", *(["--shares", str(source.devices)] if source.devices else [])]
    try:
        with Probe("fleet", arguments, deadline_s=source.deadline_s) as probe:
            while True:
                answer = probe.read()
                if "error" in answer:
                    raise from_kind(answer["error"], answer["message"], fix=answer["fix"])
                if "end" in answer:
                    return findings, ""
                event = decode(answer)
                findings.add(event)
                if isinstance(event, Said):
                    report(event.done, event.total, event.message)
    except ProbeFailed as fault:
        if not findings.nodes:
            raise RunnerUnavailable(f"the Ray cluster at {address} cannot be used: {fault}",
                                    fix="check that a Ray node of that cluster runs on this machine (ray status)") from None
        return findings, str(fault)


def to_draft(findings: Findings, source: RaySource, *, notes: Sequence[str] = ()) -> Draft:
    """The cluster without machines that were lost, or of which nothing was measured."""
    for name in findings.present:
        if name not in findings.rated:
            findings.lost[name] = "the survey ended before its devices were measured"
    site = survey_sites(findings)
    slow = stragglers(findings)
    placed = [p for p in placed_devices(findings) if p.machine in findings.present]
    answers = answers_of(findings, findings.rated)
    devices, left_out = build_devices(placed, answers, stragglers=slow)
    links, link_notes = fleet_links(findings, site)
    several = len(set(site.values())) > 1
    machines = []
    for name in findings.present:
        node, looked = findings.nodes[name], findings.looked[name]
        region = node.region or (safe_name(site[name]) if several and not node.zone else "")
        machines.append(Machine(name=name, region=region, zone=node.zone, host_memory_bytes=looked.memory_bytes, cpus=looked.cores,
                                ray_node_id=node.node_id, address=node.address,
                                allreduce_bytes_per_s=findings.inside[name].rates if name in findings.inside else {}))
    return Draft(
        cluster=ClusterRef(kind=source.kind, name=source.cluster_name, address=source.address),
        machines=tuple(machines), devices=tuple(devices), links=tuple(links), stragglers=tuple(sorted(set(slow) & {d.id for d in devices})),
        unreachable=tuple(Unreachable(machine=name, reason=why) for name, why in sorted(findings.lost.items())),
        inside={name: result for name, result in findings.inside.items() if name in findings.present},
        notes=(*notes, *findings.notes, *(f"{m} is left out: {why}" for m, why in sorted(findings.lost.items())),
               *_device_notes(findings, slow), *slowed(answers), *left_out, *link_notes, *_sum_notes(findings)))


def _device_notes(findings: Findings, slow: dict[str, float]) -> list[str]:
    notes = [f"straggler {device}: {part:.0%} of its class's median rate" for device, part in slow.items()]
    ids = {(p.machine, str(p.device.index)): p.id for p in placed_devices(findings)}
    notes += [f"{name}: {inside.line}" for name, inside in findings.inside.items() if inside.fault and name in findings.present]
    for name, rated in findings.rated.items():
        notes += [f"{ids[name, index]}: {fault}" for index, fault in rated.faults.items()]
        waited = max((a["waited"] for a in rated.answers.values()), default=0.0)
        if waited > BUSY_PART:
            notes.append(f"{name} was busy while it was measured (other programs had {waited:.0%} of the time): its rates may be low")
        node, found = findings.nodes[name], findings.looked[name].devices
        gpus = sum(d["vendor"] != "cpu" for d in found)
        if gpus and node.gpus != gpus:
            notes.append(f"{name}: Ray counts {node.gpus} GPUs, its driver {gpus}: only what Ray counts can be planned on")
        if not gpus and not node.devices:
            notes.append(undeclared(name, [p.id for p in placed_devices(findings) if p.machine == name]))
    return notes


def undeclared(machine: str, devices: list[str]) -> str:
    """How a node whose shares of a CPU Ray does not know of is started instead: a share is a "GPU" to Ray, with a resource of its name."""
    named = ", ".join(f'"device:{d}": 1' for d in devices)
    return (f"{machine}: its CPU devices are not declared to Ray, so nothing can be deployed on them: start its node with "
            f"--num-cpus {HELPERS + len(devices)} --num-gpus {len(devices)} --resources '{{{named}}}'")


def _sum_notes(findings: Findings) -> list[str]:
    """The last all-reduce of all that are left says whether the fleet sums right."""
    if len(findings.present) < 2:
        return []
    if not findings.sums:
        return ["sums over the network were not checked"]
    unchecked = {*findings.present} - {name for s in findings.sums for name in s.machines}
    notes = [f"sums were not checked on {', '.join(sorted(unchecked))} (PyTorch is not installed there?)"] if unchecked else []
    whole = [s for s in findings.sums if len(s.machines) > 2]
    if whole and not whole[-1].right and not {*whole[-1].machines} & {*findings.lost} and not findings.bad_pairs():
        notes.append(f"an all-reduce of {len(whole[-1].machines)} machines failed though every pair that was tried works: {whole[-1].why}")
    return notes


def _faults(findings: Findings) -> list[str]:
    """What strict does not pass: devices and links that failed, sums that were wrong, among machines that are present."""
    faults = [f"{name}: {fault}" for name, rated in findings.rated.items() for fault in rated.faults.values()]
    faults += [f"link {a} → {b}: {k.fault}" for (a, b), k in findings.links.items() if k.fault and not {a, b} & {*findings.lost}]
    faults += [f"{name}: {inside.line}" for name, inside in findings.inside.items() if inside.fault and name in findings.present]
    return faults + [s.why for s in findings.sums if not s.right]
