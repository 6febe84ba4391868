"""Run the job under its deployment; write the throughput log while it runs, and the final weights."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from artifacts.checkpoint import Checkpoint, CheckpointFile
from artifacts.deployment import Deployment
from artifacts.errors import ClusterChanged
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.throughput import Header, Iteration
from artifacts.topology import Topology
from stages.cluster.lease import hold_cluster
from stages.contract import StageContext
from stages.train.checkpoints import Checkpoints, Resumed
from stages.train.disk import full_disk
from stages.train.engines.base import Engine, Report, Run
from stages.train.log import FILE, ThroughputLog
from stages.train.parameters import TrainParameters
from stages.train.summary import line, summarize, values


def run(context: StageContext) -> dict[str, Any]:
    parameters = context.parameters(TrainParameters)
    job, topology, plan = context.read(Job), context.read(Topology), context.read(Plan)
    deployment = _on_paper(topology, plan) if parameters.simulate_only else context.read(Deployment)
    _belong_together(topology, plan, deployment)
    workdir = context.workdir.resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    simulated = parameters.simulate_only or topology.cluster.kind == "inventory"
    engine = _engine(simulated=simulated)
    task = Run(job=job, topology=topology, plan=plan, deployment=deployment, workdir=workdir)
    engine.check(task)
    with full_disk(workdir):
        if simulated:
            return _train(context, engine, task, None)
        with hold_cluster(context, topology.cluster.name):
            return _train(context, engine, task, Checkpoints(context, job, topology))


def _train(context: StageContext, engine: Engine, task: Run, checkpoints: Checkpoints | None) -> dict[str, Any]:
    """Run the engine and write what it makes. ``checkpoints`` None: it leaves none and goes on from none."""
    job = task.job
    resumed = checkpoints.resume(task.workdir / "resume") if checkpoints else None
    log = ThroughputLog(task.workdir / FILE, _header(engine, task, resumed), earlier=resumed.log.iterations if resumed else ())

    def on_iteration(iteration: Iteration) -> None:
        log.add(iteration)
        context.progress(iteration.step, job.iterations, line(iteration, job.iterations), **values(iteration))

    def on_checkpoint(step: int, folder: Path) -> None:
        if checkpoints is None:
            raise RuntimeError(f"engine {engine.name} left a checkpoint where none is kept")
        checkpoints.save(step, folder, log.content)
        context.log(f"checkpoint after iteration {step}: a run that is interrupted goes on from here")

    done = resumed.step if resumed else 0
    goes_on = f", going on after iteration {done}" if resumed else ""
    context.progress(done, job.iterations, f"{job.name}: {job.algorithm} for {job.iterations} iterations{goes_on}")
    result = engine.run(replace(task, resume=resumed.folder if resumed else None),
                        Report(log=context.log, iteration=on_iteration, checkpoint=on_checkpoint))
    context.write_bytes(FILE, log.content.to_jsonl().encode(), identity=log.content.identity())
    if result.weights is not None:
        _write_checkpoint(context, result.weights, step=len(log.content.iterations))
    for path in result.files:
        context.writer.put_file(path.name, path)
    return summarize(log.content)


def _header(engine: Engine, task: Run, resumed: Resumed | None) -> Header:
    used = {device for strategy in task.plan.tasks.values() for device in strategy.ranks}
    return Header(engine=engine.name, simulated=engine.name == "simulator", job=task.job.identity(),
                  plan=task.plan.identity(), seed=task.job.seed, resumed_step=resumed.step if resumed else 0, versions=engine.versions(),
                  devices={d.id: d.device_class for d in task.topology.devices if d.id in used})


def _on_paper(topology: Topology, plan: Plan) -> Deployment:
    """What the simulator plays where nothing was deployed: no node, no rank."""
    return Deployment(plan=plan.identity(), topology_fingerprint=topology.fingerprint, cluster=topology.cluster.name, nodes=[], ranks=[],
                      engine={"simulated": True})


def _belong_together(topology: Topology, plan: Plan, deployment: Deployment) -> None:
    """A deployment is of one plan, a plan of one topology."""
    if plan.topology_fingerprint != topology.fingerprint:
        raise ClusterChanged(f"the plan was made for topology {plan.topology_fingerprint[:12]}, this one is {topology.fingerprint[:12]}",
                             fix="schedule again")
    if deployment.plan != plan.identity() or deployment.topology_fingerprint != topology.fingerprint:
        raise ClusterChanged("the deployment is of another plan or topology", fix="deploy again")
    for placed in deployment.ranks:
        planned = plan.tasks[placed.task].ranks[placed.rank]
        if (placed.device, placed.machine) != (planned, topology.device(planned).machine):
            raise ClusterChanged(f"the deployment found rank {placed.rank} of {placed.task} on {placed.machine}/{placed.device}, "
                                 f"planned on {planned}", fix="deploy again")


def _engine(*, simulated: bool) -> Engine:
    """The simulator for a cluster that is described, not at hand; it uses none."""
    if simulated:
        from stages.train.engines.simulator.runner import SimulatorEngine

        return SimulatorEngine()
    from stages.train.engines.verl.runner import VerlEngine

    return VerlEngine()


def _write_checkpoint(context: StageContext, folder: Path, *, step: int) -> None:
    files = []
    for path in sorted(folder.iterdir()):
        context.writer.put_file(path.name, path)
        files.append(CheckpointFile(name=path.name, sha256=_sha256(path), size_bytes=path.stat().st_size))
    context.write(Checkpoint(step=step, format="hf", files=files))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
