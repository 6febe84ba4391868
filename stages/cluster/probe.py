"""Proof of placement: a light actor in every bundle says where it is. Nothing here is copied from the plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from artifacts.base import Strict
from artifacts.errors import ClusterChanged, StageTimeout
from artifacts.topology import Device
from stages.cluster.names import DEVICE, DEVICE_SHARE
from stages.cluster.session import Cluster


class Found(Strict):
    """Where the process in a rank's bundle found itself. ``device`` is empty when it holds none the topology knows."""

    rank: int
    machine: str
    node_id: str
    device: str
    device_uuid: str
    pid: int


def nvml_uuid(visible: str) -> str:
    """UUID of the GPU that Ray calls ``visible`` (an index or a UUID) on the machine this runs on; "" where NVML cannot say."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            by = pynvml.nvmlDeviceGetHandleByIndex if visible.isdigit() else pynvml.nvmlDeviceGetHandleByUUID
            uuid = pynvml.nvmlDeviceGetUUID(by(int(visible) if visible.isdigit() else visible))
            return uuid.decode() if isinstance(uuid, bytes) else str(uuid)
        finally:
            pynvml.nvmlShutdown()
    except Exception:
        return ""


def probe(cluster: Cluster, groups: Sequence[Any], *, deadline_s: float = 60, uuid_of: Callable[[str], str] = nvml_uuid) -> list[Found]:
    """One :class:`Found` a group, in their order.

    A CPU device is the ``device:<id>`` resource that Ray assigned to the actor in the bundle (its UUID is then the topology's
    name for it: a CPU share has no driver to ask); a GPU is the one whose UUID the driver reports from inside.

    Raises:
        StageTimeout: an actor did not answer in time; ``ClusterChanged``: it died, or sits on a node no machine stands for.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    remote = ray.remote(num_cpus=0)(_Witness)
    table = ray.util.placement_group_table()
    actors: list[Any] = []
    try:
        for group in groups:
            named = [r for r in table[group.id.hex()]["bundles"][0] if r.startswith(DEVICE)]
            actors.append(remote.options(num_gpus=DEVICE_SHARE, resources=dict.fromkeys(named, DEVICE_SHARE),
                                         scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote())
        answers = [a.report.remote(uuid_of) for a in actors]
        ready, late = ray.wait(answers, num_returns=len(answers), timeout=deadline_s)
        if late:
            ranks = [r for r, answer in enumerate(answers) if answer in set(late)]
            raise StageTimeout(f"ranks {ranks} did not say where they are within {deadline_s:g} s ({len(ready)} of {len(answers)} did)",
                               fix="see the Ray logs of their nodes, or give a longer probe deadline")
        try:
            reports = ray.get(answers, timeout=deadline_s)
        except ray.exceptions.RayError as error:
            raise ClusterChanged(f"a process started in a rank's bundle died: {type(error).__name__}: {error}",
                                 fix="see the Ray logs of its node") from None
    finally:
        for actor in actors:
            ray.kill(actor)
    return [_found(cluster, rank, report) for rank, report in enumerate(reports)]


def _found(cluster: Cluster, rank: int, report: dict[str, Any]) -> Found:
    machine = next((m for m, node in cluster.node_ids.items() if node == report["node_id"]), None)
    if machine is None:
        raise ClusterChanged(f"rank {rank} sits on Ray node {report['node_id']}, which stands for no machine of the topology",
                             fix="run profile and schedule again")
    device = _identify(cluster.topology.devices, named=report["device"], uuid=report["uuid"])
    uuid = device.uuid if device else report["uuid"]
    return Found(rank=rank, machine=machine, node_id=report["node_id"], device=device.id if device else "", device_uuid=uuid,
                 pid=report["pid"])


def _identify(devices: Sequence[Device], *, named: str, uuid: str) -> Device | None:
    for device in devices:
        if (device.id == named) if device.vendor == "cpu" else (uuid != "" and device.uuid == uuid):
            return device
    return None


class _Witness:
    """Runs in the bundle."""

    def report(self, uuid_of: Callable[[str], str]) -> dict[str, Any]:
        import ray

        context = ray.get_runtime_context()
        named = [r.removeprefix("device:") for r in context.get_assigned_resources() if r.startswith("device:")]
        gpus = context.get_accelerator_ids().get("GPU") or [""]
        return {"node_id": context.get_node_id(), "device": named[0] if named else "", "uuid": uuid_of(gpus[0]),
                "pid": os.getpid()}
