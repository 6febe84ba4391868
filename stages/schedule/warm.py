"""``python -m stages.schedule.warm``: compile the kernel now, so that the first plan need not wait (images do this when they are built)."""

from __future__ import annotations

import time

from artifacts.catalog import models
from artifacts.job import Batch, Job, Lengths
from artifacts.topology import ClusterRef, Device, Link, Machine, Measured, Topology
from stages.schedule.cost.iteration import compose, price_group
from stages.schedule.draft import Cut, GroupDraft
from stages.schedule.parameters import ScheduleParameters
from stages.schedule.problem import build_problem
from stages.schedule.solve import solve
from stages.schedule.solvers import SOLVERS


def warm() -> float:
    """Plan a small job on two machines, and run every compiled part once that this does not need; seconds it took."""
    started, job = time.monotonic(), _job()
    for solver in ("auto", "sha-ea"):
        solve(job, _pair(), parameters=ScheduleParameters(solver=solver, evaluations=200))  # type: ignore[arg-type]
    for named in SOLVERS.values():
        named.ready(build_problem(job, _pair()))
    return time.monotonic() - started


def first_price() -> float:
    """Seconds of an iteration of that job, all tasks together on one machine: needs the cost kernel and nothing else."""
    problem = build_problem(_job(), _pair())
    tasks = tuple(t.name for t in problem.tasks)
    group = price_group(problem, GroupDraft(tasks=tasks, devices=(0, 1), cut=Cut(dp=2, pp=1, tp=1, micro=1), rollout_tp=1))
    assert group is not None
    return compose(problem, [group]).iteration_s


def _job() -> Job:
    return Job(
        name="warm",
        algorithm="ppo",
        models={"actor": models()["Qwen3-0.6B"]},
        batch=Batch(prompts=8, responses_per_prompt=2),
        prompt_tokens=Lengths(mean=64, max=64),
        response_tokens=Lengths(mean=32, max=64),
    )


def _pair() -> Topology:
    machines = [Machine(name=f"m{i}", region=f"r{i}", host_memory_bytes=2**38, cpus=32) for i in range(2)]
    devices = [
        Device(
            id=f"{machine.name}.{g}",
            machine=machine.name,
            vendor="nvidia",
            name="warm",
            device_class="warm",
            uuid=f"{machine.name}.{g}",
            memory_bytes=2**36,
            achieved_flops_per_s=Measured(value=1e14, provenance="assumed"),
            memory_bandwidth_bytes_per_s=Measured(value=1e12, provenance="assumed"),
        )
        for machine in machines
        for g in range(2)
    ]
    links = [
        Link(source=a.name, target=b.name, latency_s=1e-5, bandwidth_bytes_per_s=1e10, provenance="assumed")
        for a in machines
        for b in machines
    ]
    return Topology(cluster=ClusterRef(kind="inventory", name="warm"), machines=machines, devices=devices, links=links)


if __name__ == "__main__":
    print(f"compiled in {warm():.0f} s")
