"""Proof of placement: a light actor in every bundle says where it is. Nothing here is copied from the plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from artifacts.errors import ClusterChanged, StageTimeout
from stages.cluster.names import DEVICE, DEVICE_SHARE
from stages.cluster.session import Cluster


class Found(BaseModel, frozen=True):
    """Where the process in a rank's bundle found itself. ``device`` is empty when Ray gave none we know."""

    rank: int
    machine: str
    node_id: str
    device: str
    device_uuid: str
    pid: int


def probe(cluster: Cluster, groups: Sequence[Any], *, deadline_s: float = 60) -> list[Found]:
    """One :class:`Found` a group, in their order.

    The device is what Ray assigned to the actor in the bundle: its ``device:<id>`` resource, or, where nodes do not declare
    that, the UUID NVML reports for the one GPU Ray made visible.

    Raises:
        StageTimeout: an actor did not answer in time; ``ClusterChanged``: one sits on a node no machine stands for.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    remote = ray.remote(num_cpus=0)(_Witness)
    table = ray.util.placement_group_table()
    actors = []
    try:
        for group in groups:
            named = [r for r in table[group.id.hex()]["bundles"][0] if r.startswith(DEVICE)]
            actors.append(remote.options(num_gpus=DEVICE_SHARE, resources=dict.fromkeys(named, DEVICE_SHARE),
                                         scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote())
        answers = [a.report.remote() for a in actors]
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
    machines = {node: machine for machine, node in cluster.node_ids.items()}
    machine = machines.get(report["node_id"])
    if machine is None:
        raise ClusterChanged(f"rank {rank} sits on Ray node {report['node_id']}, which stands for no machine of the topology",
                             fix="run profile and schedule again")
    known = cluster.topology.devices
    device = next((d for d in known if d.id == report["device"] or (report["uuid"] and d.uuid == report["uuid"])), None)
    return Found(rank=rank, machine=machine, node_id=report["node_id"], device=device.id if device else report["device"],
                 device_uuid=report["uuid"] or (device.uuid if device else ""), pid=report["pid"])


class _Witness:
    """Runs in the bundle. Must not import ours beyond the standard library: remote nodes need not have it."""

    def report(self) -> dict[str, Any]:
        import ray

        context = ray.get_runtime_context()
        named = [r.removeprefix("device:") for r in context.get_assigned_resources() if r.startswith("device:")]
        return {"node_id": context.get_node_id(), "device": named[0] if named else "", "uuid": self._uuid(context), "pid": os.getpid()}

    @staticmethod
    def _uuid(context: Any) -> str:
        """UUID of the GPU Ray made visible here, from NVML; empty on machines without NVML."""
        gpus = context.get_accelerator_ids().get("GPU") or []
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:
            return ""
        try:
            visible = gpus[0]
            handle = pynvml.nvmlDeviceGetHandleByUUID(visible) if not visible.isdigit() else pynvml.nvmlDeviceGetHandleByIndex(int(visible))
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            return uuid.decode() if isinstance(uuid, bytes) else uuid
        except Exception:
            return ""
        finally:
            pynvml.nvmlShutdown()
