"""The verl engine: prepares data and model, places the ranks, trains, and hands out the final weights."""

from __future__ import annotations

import os
import secrets
import shutil
import traceback
from pathlib import Path
from typing import Any

import yaml

from artifacts.catalog.engines import resolve_engine
from artifacts.errors import InputError
from artifacts.job import Role
from stages.cluster import open_cluster, pinned_groups
from stages.cluster.machines import MachineWatch
from stages.cluster.watch import watched
from stages.train.dataset import Prompts, write_prompts
from stages.train.engines.base import Report, Result, Run
from stages.train.engines.verl import config as verl_config
from stages.train.engines.verl import limits, placement, versions
from stages.train.engines.verl.agent_host import AgentLoopHost
from stages.train.engines.verl.config_rollout import Server
from stages.train.engines.verl.environment import environment
from stages.train.engines.verl.failures import crashed
from stages.train.engines.verl.modes import mode_of
from stages.train.engines.verl.platforms import platform_of
from stages.train.engines.verl.ranks import seats
from stages.train.reward_model import build_toy_reward_model, check_tokenizer, with_head
from stages.train.toy_model import build_toy_model

CLUSTER_DEADLINE_S = 120.0
PLACEMENT_DEADLINE_S = 60.0


class VerlEngine:
    """verl on Ray, Megatron-Core for training. On GPUs only where somebody asks for it: that has never been run."""

    name = "verl"

    def versions(self) -> dict[str, str]:
        return versions.found()

    def check(self, run: Run) -> None:
        limits.check(run.job, run.plan, run.topology)
        versions.check(vllm=_server(run) == "vllm" and _vendors(run) == {"cpu"})

    def run(self, run: Run, report: Report) -> Result:
        variables = environment(run.workdir, platform_of(_vendors(run)))
        os.environ.update(variables)
        prompts = write_prompts(run.job.dataset, seed=run.job.seed, folder=run.workdir / "data")
        model = _model(run, prompts)
        _check_prompts(run, prompts, model)
        paths = verl_config.Paths(model, prompts.train_file, prompts.validation_file, _router(run), run.workdir / "checkpoints",
                                 run.resume, _reward_model(run, prompts, model))
        report.log("starting Ray")
        with open_cluster(run.topology, address=run.deployment.address, env=variables, workdir=run.workdir,
                          deadline_s=CLUSTER_DEADLINE_S) as cluster, watched(MachineWatch(cluster.node_ids)):
            from ray.exceptions import RayError

            try:
                return _train(run, report, cluster, paths)
            except RayError as error:
                traceback.print_exc()
                raise crashed(error) from None


def _train(run: Run, report: Report, cluster: Any, paths: verl_config.Paths) -> Result:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    specs = placement.pools_of(run.plan)
    groups = _place(cluster, specs)
    report.log("ranks have their places; loading verl")
    # Beside the driver: it reads the model's tokenizer and the scorer from where the driver has them.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    host = ray.remote(AgentLoopHost).options(num_cpus=0, scheduling_strategy=here).remote()
    import transfer_queue
    from verl.utils.logging_utils import configure_verl_logging

    from stages.train.engines.verl import metrics
    from stages.train.engines.verl.agent_loop import HostedAgentLoopManager
    from stages.train.engines.verl.trainer import TRAINERS, Orders, Step

    configure_verl_logging()
    platform = platform_of(_vendors(run))
    keys = verl_config.overrides(run.job, run.plan, paths, server=_server(run), platform=platform)
    config = verl_config.validate(verl_config.compose(keys), run.plan)
    config.transfer_queue.enable = True
    differences: list[float] = []

    def on_step(step: Step) -> None:
        report.iteration(metrics.iteration(step, run.plan))
        differences.append(metrics.sampled_difference(step))

    orders = Orders(plan=run.plan, specs=specs, groups=groups, replica_of_server=_replica_of_server(run), router=str(paths.router),
                    on_step=on_step, on_checkpoint=report.checkpoint,
                    reward=verl_config.reward_keys(run.job, run.plan, paths.reward, platform=platform) if paths.reward else {})
    trainer = TRAINERS[mode_of(run.job, run.plan)](config, orders)
    transfer_queue.init(config.transfer_queue)
    report.log("starting the workers")
    trainer.init()
    found = trainer.placements()
    for spec in specs:
        placement.compare(spec, found[spec.name], topology=run.topology, node_of_machine=cluster.node_ids)
    if trainer.restored_prompts:
        report.log(f"{trainer.restored_prompts} prompts that were being sampled go on")
    _check_folder(trainer, paths.checkpoints, report)
    agent_loop = HostedAgentLoopManager.create(config=config, llm_client=trainer.get_llm_client(), teacher_client=None,
                                               reward_loop_worker_handles=trainer.get_reward_handles(), host=host)
    report.log("training")
    trainer.fit(agent_loop)
    report.log(f"log-probabilities of the rollout and of the actor differ by at most {max(differences, default=0.0):.2g} a token "
               "(mean of an iteration)")
    weights = _export(trainer, paths.model, run.workdir / "weights")
    transfer_queue.close()
    return Result(weights=weights, versions=versions.found())


def _place(cluster: Any, specs: list[placement.PoolSpec]) -> dict[str, list[Any]]:
    """Pool → a placement group for each of its devices. Pools on the same devices share their groups."""
    placed: dict[str, Any] = {}
    for spec in specs:
        devices = [device for device in spec.devices if device not in placed]
        if devices:
            groups = pinned_groups(cluster, devices, name=spec.name, cpus_per_rank=1, colocated=spec.processes,
                                   deadline_s=PLACEMENT_DEADLINE_S)
            placed |= dict(zip(devices, groups, strict=True))
    return {spec.name: [placed[device] for device in spec.devices] for spec in specs}


def _reward_model(run: Run, prompts: Prompts, actor: Path) -> Path | None:
    """The reward model's folder as Megatron reads it; None where a rule rewards."""
    if run.job.reward == "rule":
        return None
    model = _model(run, prompts, "reward")
    if not run.job.model("reward").hf_id:
        model = build_toy_reward_model(run.job.model("reward"), model, seed=run.job.seed, cache=run.workdir / "models")
    check_tokenizer(model, actor)
    return with_head(model, cache=run.workdir / "models")


def _model(run: Run, prompts: Prompts, role: Role = "actor") -> Path:
    spec = run.job.model(role)
    if not spec.hf_id:
        return build_toy_model(spec, prompts.texts, seed=run.job.seed, max_positions=run.job.sequence_tokens_max,
                               cache=run.workdir / "models")
    path = Path(spec.hf_id)
    if not (path / "config.json").is_file():
        raise InputError(f"model {spec.name}: {spec.hf_id} is not a Hugging Face folder on this machine",
                         fix="download it first and give the folder as hf_id")
    return path


def _check_prompts(run: Run, prompts: Prompts, model: Path) -> None:
    """verl stops in the middle of a run on a prompt that is too long, and never starts an epoch of too few prompts."""
    import pyarrow.parquet as pq
    from transformers import AutoTokenizer

    rows = pq.read_table(prompts.train_file, columns=["prompt"]).to_pylist()
    if len(rows) < run.job.batch.prompts:
        raise InputError(f"the dataset holds {len(rows)} prompts, an iteration takes {run.job.batch.prompts}",
                         fix="raise dataset.size or lower batch.prompts")
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    longest = max(len(tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)) for row in rows)
    if longest > run.job.prompt_tokens.max:
        raise InputError(f"a prompt of the dataset takes {longest} tokens, prompt_tokens.max is {run.job.prompt_tokens.max}",
                         fix=f"set prompt_tokens.max to {longest}")


def _server(run: Run) -> Server:
    """The rollout server the job has on the plan's devices."""
    return resolve_engine(run.job.engine, _vendors(run)).rollout_server


def _vendors(run: Run) -> set[str]:
    used = {device for group in run.plan.groups for device in group.devices}
    return {d.vendor for d in run.topology.devices if d.id in used}


def _replica_of_server(run: Run) -> list[int]:
    """The plan's replica that each server is. The small server is one a rank, in the actor's rank order; vLLM's are as planned."""
    rollout = run.plan.tasks["rollout"]
    return seats(run.plan) if _server(run) == "hf" else list(range(rollout.dp))


def _router(run: Run) -> Path:
    """verl reads the router's settings from a file; its shares are in the order of the servers."""
    shares = run.plan.tasks["rollout"].local_batch_sequences
    path = run.workdir / "router.yaml"
    settings = {"router_class": "stages.train.engines.verl.router.ShareRouter", "shares": [shares[r] for r in _replica_of_server(run)]}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def _check_folder(trainer: Any, folder: Path, report: Report) -> None:
    """Every rank writes its part of a checkpoint below one folder; where machines do not share it, none is written."""
    if trainer.config.trainer.save_freq <= 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / "seen-by"
    token.write_text(secrets.token_hex(8))
    if not trainer.reads_everywhere(token):
        trainer.config.trainer.save_freq = -1
        report.log(f"the machines do not share {folder}: no checkpoints are kept, an interrupted run starts from the beginning")


def _export(trainer: Any, model: Path, folder: Path) -> Path:
    """The actor's weights after the last update, in a Hugging Face folder."""
    from safetensors.torch import save_file

    state = trainer.weights()
    folder.mkdir(parents=True, exist_ok=True)
    for path in model.iterdir():
        if path.suffix in (".json", ".jinja", ".txt", ".model") and path.name != "model.safetensors.index.json":
            shutil.copy(path, folder / path.name)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
