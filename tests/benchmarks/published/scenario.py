"""A published run as the pipeline's own documents: job, topology, plan, and the problem they make."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from artifacts.catalog.engines import DecodeHost, EngineCapability
from artifacts.job import Batch, Engine, Job, Lengths, TaskName
from artifacts.model_spec import ModelSpec
from artifacts.plan import Group, Plan, Strategy
from artifacts.topology import Topology
from stages.schedule.problem import Problem, build_problem
from tests.benchmarks.published.facts import Run, known_models, run_of
from tests.benchmarks.published.fleet import build_topology
from tests.benchmarks.published.operators import operator_lengths, operator_model
from tests.benchmarks.published.rows import Row
from tests.benchmarks.published.selection import kind_of

HOSTS = {
    "eager": DecodeHost(gap_s=4e-3, sequence_s=(20e-3 - 4e-3) / 200, layer_s=23e-3 / 28),
    "runtime": DecodeHost(gap_s=0, sequence_s=0, layer_s=0),
}
"""Of engines that are not the pipeline's own. ``eager``, vLLM up to 0.6 with enforce_eager: the GPU waits 4 ms between steps of few sequences
(vllm-project/vllm issue 6854) and 20 ms at 200 (issue 6801); 23 ms a token in the 28 layers of Qwen2.5-7B on an A800, where reading the
weights takes 10 (vllm-project/vllm-omni issue 7960). ``runtime``, a compiled C++ runtime: none known.
"""
MICRO = re.compile(r"micro-batch (\d+)")


@dataclass(frozen=True, eq=False)
class Scenario:
    """A row's run, ready to be priced."""

    row: Row
    run: Run
    problem: Problem
    plan: Plan

    @property
    def job(self) -> Job:
        return self.problem.job


@dataclass(frozen=True)
class Shape:
    """Sizes of a run in the pipeline's terms."""

    model: ModelSpec
    prompts: int
    responses: int
    prompt: Lengths
    response: Lengths
    train: tuple[int, int, int]
    """(dp, pp, tp) of training and inference."""
    rollout_tp: int
    gpus: int
    asynchronous: bool


def build_scenario(row: Row, *, context: int = 0) -> Scenario:
    """The run of a scored row. ``context`` replaces the tokens of its prompts."""
    run = run_of(row)
    assert run is not None
    shape = shape_of(row, run)
    if context:
        shape = replace(shape, prompt=Lengths(mean=context, max=context))
    trainers = shape.train[0] * shape.train[1] * shape.train[2]
    ring = shape.rollout_tp if serves(row) else shape.train[2] if shape.train[2] > 1 else min(trainers, run.gpus_per_machine)
    alone = serves(row)
    topology = build_topology(run, gpus=shape.gpus + alone, ring=ring)
    job = _job(row, run, shape)
    problem = build_problem(job, topology)
    problem = replace(problem, engine=_engine(problem.engine, run))
    return Scenario(row=row, run=run, problem=problem, plan=_plan(job, run, shape, topology, alone=alone))


def one_step_off(row: Row) -> bool:
    return "1-step off" in row.notes


def serves(row: Row) -> bool:
    """Whether the row is of a serving engine without training."""
    kind, phase = kind_of(row)
    return kind == "decode" or phase == "decode attention"


def shape_of(row: Row, run: Run) -> Shape:
    assert row.n_gpus is not None and row.tp is not None and row.pp is not None
    responses = run.responses_per_prompt or row.responses
    asynchronous = one_step_off(row)
    trainers = row.n_gpus // 2 if asynchronous else row.n_gpus
    rollout_tp = run.rollout_tp or row.tp
    train = (1, 1, 1) if serves(row) else (trainers, 1, 1) if run.fsdp else (trainers // (row.pp * row.tp), row.pp, row.tp)
    prompt, response = _lengths(row, run)
    return Shape(
        model=operator_model(row) if kind_of(row)[0] == "operator" else known_models()[row.model],
        prompts=(row.prompts or 1) // (run.responses_per_prompt or 1),
        responses=responses,
        prompt=prompt,
        response=response,
        train=train,
        rollout_tp=rollout_tp,
        gpus=row.n_gpus,
        asynchronous=asynchronous,
    )


def _lengths(row: Row, run: Run) -> tuple[Lengths, Lengths]:
    if kind_of(row)[0] == "operator":
        return operator_lengths(row)
    if kind_of(row)[0] == "training iteration":
        assert row.prompt_len is not None
        half = row.prompt_len // 2
        return Lengths(mean=half, max=half), Lengths(mean=half, max=half)
    prompt = run.prompt or (row.prompt_len or 1, row.prompt_len or 1)
    response = run.response or (row.response_len or 1, run.response_max or row.response_len or 1)
    return Lengths(mean=prompt[0], max=prompt[1]), Lengths(mean=response[0], max=response[1])


def _job(row: Row, run: Run, shape: Shape) -> Job:
    return Job(
        name="published",
        algorithm=run.algorithm,
        mode="async" if shape.asynchronous else "sync",
        models={"actor": shape.model},
        batch=Batch(
            prompts=shape.prompts,
            responses_per_prompt=shape.responses,
            mini_batch_prompts=run.mini_batch_prompts,
            micro_batch_sequences=min(_micro(row, run), (run.mini_batch_prompts or shape.prompts) * shape.responses),
        ),
        prompt_tokens=shape.prompt,
        response_tokens=shape.response,
        precision=run.precision,
        engine=Engine(recompute=run.recompute, offload=run.offload),
    )


def _micro(row: Row, run: Run) -> int:
    found = MICRO.search(row.notes)
    return run.micro or (int(found.group(1)) if found else 1)


def _engine(engine: EngineCapability, run: Run) -> EngineCapability:
    """The pipeline's own engine, with what the run's did otherwise. A compiled runtime is given the batch of the row, which did fit."""
    rollout = engine.rollout.model_copy(
        update={
            "sequences_in_flight": run.in_flight or (256 if run.serving != "runtime" else 100_000),
            "host": HOSTS.get(run.serving, engine.rollout.host),
        }
    )
    memory = (
        engine.memory.model_copy(update={"reserve": 0.0, "per_rank_bytes": 0, "generation_bytes": 0})
        if run.serving == "runtime"
        else engine.memory
    )
    return engine.model_copy(
        update={
            "optimizer_sharded": run.optimizer_sharded,
            "gradient_bytes": run.gradient_bytes,
            "flash_attention": run.flash,
            "fused_operations": not run.fsdp,
            "sequence_parallel": run.sequence_parallel,
            "divided_hops": True,
            "fully_sharded": run.fsdp,
            "rollout": rollout,
            "memory": memory,
        }
    )


def _plan(job: Job, run: Run, shape: Shape, topology: Topology, *, alone: bool) -> Plan:
    """``alone``: a serving engine without training; the job's other tasks are put out of its way on a GPU more."""
    apart = alone or shape.asynchronous
    ids = [d.id for d in topology.devices]
    dp, pp, tp = shape.train
    trainers = ids[len(ids) - dp * pp * tp :] if apart else ids[: dp * pp * tp]
    generators = ids[: len(ids) - len(trainers)] if apart else ids
    sequences = shape.prompts * shape.responses
    layers = run.layers or _equal(shape.model.layers, pp)
    tasks: dict[TaskName, Strategy] = {"rollout": _rollout(shape, generators, sequences)}
    for task in job.tasks():
        if task != "rollout":
            own = {"critic_training": run.critic_micro, "actor_training": run.micro}.get(task, run.log_prob_micro)
            tasks[task] = Strategy(
                dp=dp,
                pp=pp,
                tp=tp,
                layers=layers,
                ranks=_ranks(trainers, dp, pp, tp, megatron=not run.machines),
                local_batch_sequences=[sequences // dp] * dp,
                micro_batch_sequences=min(own or job.batch.micro_batch_sequences, sequences // dp),
            )
    models: list[TaskName] = [t for t in tasks if t != "rollout"]
    groups = [Group(name="all", tasks=list(tasks), devices=ids)]
    if apart:
        groups = [Group(name="generation", tasks=["rollout"], devices=generators), Group(name="training", tasks=models, devices=trainers)]
    return Plan(job=job.identity(), topology_fingerprint=topology.fingerprint, groups=groups, tasks=tasks)


def _ranks(devices: list[str], dp: int, pp: int, tp: int, *, megatron: bool) -> list[str]:
    """Devices in the order of a Strategy. Megatron numbers its ranks shard, replica, stage; a run with machines named has them in order."""
    if not megatron:
        return devices
    return [devices[(j * dp + i) * tp + k] for i in range(dp) for j in range(pp) for k in range(tp)]


def _rollout(shape: Shape, devices: list[str], sequences: int) -> Strategy:
    """Replicas of equal shares, over as many devices as there are sequences for."""
    dp = min(len(devices) // shape.rollout_tp, sequences) or 1
    used = devices[: dp * shape.rollout_tp] if len(devices) >= shape.rollout_tp else devices
    shares = _equal(sequences, dp)
    tp = len(used) // dp
    return Strategy(
        dp=dp, pp=1, tp=tp, layers=[shape.model.layers], ranks=used, local_batch_sequences=shares, micro_batch_sequences=max(shares)
    )


def _equal(total: int, parts: int) -> list[int]:
    """Shares that differ by at most one, the larger ones first."""
    return [total // parts + (i < total % parts) for i in range(parts)]
