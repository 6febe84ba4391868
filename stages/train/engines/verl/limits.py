"""What this engine can carry out, checked on the plan before anything starts. Each refusal names its rule."""

from __future__ import annotations

import os

from artifacts.catalog.engines import EngineCapability, resolve_engine
from artifacts.job import Job, TaskName
from artifacts.model_spec import ModelSpec
from artifacts.plan import Plan, Strategy
from artifacts.topology import Topology
from stages.train.engines.verl.limits_rollout import check_rollout
from stages.train.engines.verl.modes import mode_of, parts
from stages.train.engines.verl.rules import rule

TRY_GPUS = "HETRL_TRY_GPUS"
"""Environment variable by which somebody with GPUs takes the risk."""
CRITIC: tuple[TaskName, TaskName] = ("critic_inference", "critic_training")


def check(job: Job, plan: Plan, topology: Topology) -> None:
    """Raise ``InputError`` naming the first rule the job or its plan breaks."""
    _job(job)
    missing = [task for task in job.tasks() if task not in plan.tasks]
    rule(not missing, f"every task of the job has a strategy; the plan lacks {', '.join(missing)}")
    extra = [task for task in plan.tasks if task not in job.tasks()]
    rule(not extra, f"the plan holds only tasks of the job; {', '.join(extra)} is not one")
    known = {d.id: d for d in topology.devices}
    for task, strategy in plan.tasks.items():
        for device in strategy.ranks:
            rule(device in known, f"task {task} names device {device}, which the topology does not have")
            rule(known[device].vendor == "cpu" or os.environ.get(TRY_GPUS) == "1",
                 f"it has never been run on GPUs; {device} is {known[device].vendor}", fix=f"set {TRY_GPUS}=1 to be the first to try")
    vendors = {known[device].vendor for strategy in plan.tasks.values() for device in strategy.ranks}
    engine = resolve_engine(job.engine, vendors)
    if vendors == {"cpu"}:
        _cpu(job)
    _mode(job, plan, engine)
    training = plan.tasks["actor_training"]
    _training("actor_training", training, job, job.model("actor"))
    _reference(job, plan, training)
    check_rollout(job, plan, topology, engine)
    if job.algorithm == "ppo":
        _critic_group(job, plan)
    if job.reward == "model":
        _layout("reward_inference", plan.tasks["reward_inference"], job, job.model("reward"), steps=parts(job, mode_of(job, plan)))


def _job(job: Job) -> None:
    rule(job.precision == "bf16", f"Megatron trains in bf16 under verl; the job asks for {job.precision}", fix="set precision: bf16")
    actor = job.model("actor")
    for role in ("reference", "critic"):
        same = job.model(role).model_dump(exclude={"name"}) == actor.model_dump(exclude={"name"})
        rule(same, f"{role} and actor share one model in this version of the engine", fix=f"leave models.{role} out")
    reward = job.model("reward")
    rule(job.reward == "rule" or reward.vocab == actor.vocab,
         f"a reward model reads the actor's tokens; {reward.name} has {reward.vocab} of them, {actor.name} {actor.vocab}",
         fix="choose a reward model of the actor's family")


def _cpu(job: Job) -> None:
    rule(not job.engine.offload, "a CPU has nowhere to offload to", fix="set engine.offload: false")
    rule(job.engine.recompute == "none", f"recompute {job.engine.recompute} is not supported on a CPU", fix="set engine.recompute: none")


def _mode(job: Job, plan: Plan, engine: EngineCapability) -> None:
    """Any server takes turns with the training (``colocate_async``), which no scheduler plans; beside it not all can run."""
    rule(job.mode in engine.modes or mode_of(job, plan) == "colocate_async",
         f"mode {job.mode} needs another rollout server than {engine.rollout_server}",
         fix="set engine.rollout: vllm, or mode: sync")


def _reference(job: Job, plan: Plan, training: Strategy) -> None:
    group, other = plan.group_of("actor_training").name, plan.group_of("reference_inference").name
    rule(other == group, f"reference_inference shares the actor's devices; the plan puts it into group {other}")
    reference = plan.tasks["reference_inference"]
    same = (reference.dp, reference.pp, reference.tp, reference.layers, reference.ranks) == (
        training.dp, training.pp, training.tp, training.layers, training.ranks)
    rule(same, "reference_inference has the layout, layers and ranks of actor_training: one set of process groups a worker")
    _shares("reference_inference", reference, sum(training.local_batch_sequences), steps=parts(job, mode_of(job, plan)))


def _critic_group(job: Job, plan: Plan) -> None:
    inference, training = (plan.tasks[task] for task in CRITIC)
    rule(plan.group_of(CRITIC[0]).name == plan.group_of(CRITIC[1]).name, "critic_inference and critic_training share one group")
    rule(inference.model_dump(exclude={"micro_batch_sequences"}) == training.model_dump(exclude={"micro_batch_sequences"}),
          "critic_inference and critic_training have one layout, one order of ranks and the same shares")
    _training("critic_training", training, job, job.model("critic"))
    actor = plan.tasks["actor_training"]
    if plan.group_of("critic_training").name == plan.group_of("actor_training").name:
        rule((training.dp, training.pp, training.tp, training.ranks) == (actor.dp, actor.pp, actor.tp, actor.ranks),
              "a critic that shares the actor's group has its layout and ranks: one set of process groups a worker")


def _training(task: str, strategy: Strategy, job: Job, model: ModelSpec) -> None:
    _layout(task, strategy, job, model, steps=job.batch.sequences // job.batch.mini_batch_sequences)


def _layout(task: str, strategy: Strategy, job: Job, model: ModelSpec, *, steps: int) -> None:
    rule(sum(strategy.layers) == model.layers, f"the layers of {task} add up to {sum(strategy.layers)}; the model has {model.layers}")
    for what in ("heads", "kv_heads", "intermediate", "vocab"):
        count = getattr(model, what)
        rule(count % strategy.tp == 0, f"tp {strategy.tp} of {task} divides the model's {what}, {count}")
    rule(job.batch.sequences % strategy.dp == 0, f"dp {strategy.dp} of {task} divides the {job.batch.sequences} sequences of an iteration")
    _shares(task, strategy, job.batch.sequences, steps=steps)


def _shares(task: str, strategy: Strategy, total: int, *, steps: int) -> None:
    shares = strategy.local_batch_sequences
    rule(sum(shares) == total, f"the shares of {task}, {shares}, add up to {sum(shares)}; an iteration has {total} sequences")
    rule(min(shares) > 0, f"every replica of {task} takes part; the shares are {shares}")
    rule(all(s % steps == 0 for s in shares), f"each share of {task}, {shares}, divides into {steps} mini-batches")
