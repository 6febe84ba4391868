"""Facts of every node of a running Ray cluster, gathered by a task pinned to each."""

from __future__ import annotations

from typing import Any

from artifacts.errors import RunnerUnavailable, StageTimeout
from artifacts.job import Job
from stages.cluster import Cluster
from stages.deploy.facts import HostFacts, gather
from stages.deploy.host import what_to_read


def look_at_nodes(cluster: Cluster, machines: list[str], job: Job, *, disk_path: str, ask_nvml: bool,
                  deadline_s: float) -> dict[str, HostFacts]:
    """Machine → facts of its host.

    Raises:
        StageTimeout: nodes that did not answer in time, by machine; ``RunnerUnavailable``: a node cannot run the look at all.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0)(_gather)
    asked: dict[Any, str] = {}
    for machine in machines:
        arguments = {"disk_path": disk_path, "ask_nvml": ask_nvml, **what_to_read(job)}
        there = NodeAffinitySchedulingStrategy(cluster.node_ids[machine], soft=False)
        asked[remote.options(scheduling_strategy=there).remote(arguments)] = machine
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=deadline_s)
    if late:
        raise StageTimeout(f"{', '.join(asked[r] for r in late)} did not say what it has within {deadline_s:g} s",
                           fix="see whether its Ray node is alive and has a CPU to spare")
    found = {}
    for answer in ready:
        try:
            found[asked[answer]] = HostFacts.model_validate(ray.get(answer, timeout=deadline_s))
        except ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[-1]
            raise RunnerUnavailable(f"machine {asked[answer]} cannot run HetRL's checks: {first}",
                                    fix="install hetrl with its engine there") from None
    return {machine: found[machine] for machine in machines}


def _gather(arguments: dict[str, Any]) -> dict[str, Any]:
    return gather(**arguments).model_dump()
