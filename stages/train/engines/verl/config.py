"""Job and plan as verl's own Hydra configuration: overrides on ``ppo_megatron_trainer``, composed and validated by verl's own code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.job import Job
from artifacts.plan import Plan, Strategy, pipeline_layout
from stages.train.engines.verl.config_rollout import Server, Value, rollout_keys
from stages.train.engines.verl.platforms import CPU, Platform
from stages.train.engines.verl.score import __file__ as SCORE_FILE

CONFIG_NAME = "ppo_megatron_trainer"
_ACTOR, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
_SAVED = ["model", "optimizer"]
"""What a checkpoint holds. Not the states of random generators: training draws nothing, and they would bind it to one layout."""


@dataclass(frozen=True)
class Paths:
    """Files of a run that verl reads. ``reward``: the reward model as Megatron reads it, where there is one."""

    model: Path
    train_file: Path
    validation_file: Path
    router: Path
    checkpoints: Path
    resume: Path | None = None
    reward: Path | None = None


def overrides(job: Job, plan: Plan, paths: Paths, *, server: Server = "hf", platform: Platform = CPU) -> dict[str, Value]:
    """verl's keys and their values, for a rollout by ``server``. A key that verl's defaults do not hold starts with ``+``."""
    actor, reference = plan.tasks["actor_training"], plan.tasks["reference_inference"]
    batch, model = job.batch, str(paths.model)
    keys: dict[str, Value] = {
        "data.train_files": str(paths.train_file),
        "data.val_files": str(paths.validation_file),
        "data.train_batch_size": batch.prompts,
        "data.max_prompt_length": job.prompt_tokens.max,
        "data.max_response_length": job.response_tokens.max,
        "data.dataloader_num_workers": 0,
        "data.seed": job.seed,
        **_model("actor_rollout_ref.model", model, platform),
        **_trained(_ACTOR, actor, job, platform),
        f"{_ACTOR}.ppo_mini_batch_size": batch.mini_batch_prompts or batch.prompts,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": _nominal_micro(actor, job),
        f"{_ACTOR}.ppo_epochs": batch.epochs,
        f"{_ACTOR}.use_torch_compile": False,
        f"{_ACTOR}.use_kl_loss": True,
        f"{_ACTOR}.kl_loss_coef": job.kl.coefficient,
        **_reference(reference, actor, job, platform),
        f"{_REF}.log_prob_micro_batch_size_per_gpu": reference.micro_batch_sequences,
        **rollout_keys(job, plan, server=server, router=str(paths.router), platform=platform),
        "reward.num_workers": 0,
        "reward.custom_reward_function.path": SCORE_FILE if job.reward == "rule" else None,
        "algorithm.adv_estimator": "gae" if job.algorithm == "ppo" else "grpo",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        # Its process asks for a core: a head node that declares none, as on Kubernetes and in the lab, would refuse it.
        "+transfer_queue.backend.SimpleStorage.required_node_resource": "CPU",
        "trainer.device": platform.device,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": len(actor.ranks),
        "trainer.total_training_steps": job.iterations,
        "trainer.total_epochs": job.iterations,
        "trainer.logger": [],
        "trainer.val_before_train": False,
        "trainer.save_freq": job.checkpoint_every or -1,
        "trainer.resume_mode": "resume_path" if paths.resume else "disable",
        "trainer.resume_from_path": str(paths.resume) if paths.resume else None,
        "trainer.default_local_dir": str(paths.checkpoints),
    }
    if job.algorithm == "ppo":
        critic = plan.tasks["critic_training"]
        keys |= {
            "critic.enable": True,
            **_model("critic.model", model, platform),
            **_trained("critic", critic, job, platform),
            "critic.ppo_micro_batch_size_per_gpu": critic.micro_batch_sequences,
        }
    return keys


def reward_keys(job: Job, plan: Plan, model: Path, *, platform: Platform = CPU) -> dict[str, Value]:
    """What a reward model has instead, in a copy of verl's section for a critic: both are a transformer with one number for a head."""
    strategy = plan.tasks["reward_inference"]
    return {
        **_model("critic.model", str(model), platform),
        **_trained("critic", strategy, job, platform),
        "critic.ppo_micro_batch_size_per_gpu": strategy.micro_batch_sequences,
    }


def compose(keys: dict[str, Value]) -> Any:
    """The whole configuration as verl composes it."""
    import verl
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    folder = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        return hydra_compose(CONFIG_NAME, overrides=[f"{key}={_literal(value)}" for key, value in keys.items()])


def validate(config: Any, plan: Plan) -> Any:
    """Pass the configuration through verl's own checks, then set the plan's micro-batch sizes.

    verl's check wants a micro-batch that divides every replica's equal share; the workers take any (:mod:`megatron_cpu`).
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = plan.tasks["actor_training"].micro_batch_sequences
    return config


def _model(prefix: str, path: str, platform: Platform) -> dict[str, Value]:
    return {
        f"{prefix}.path": path,
        f"{prefix}.use_remove_padding": platform.remove_padding,
        f"{prefix}.enable_gradient_checkpointing": False,  # FSDP's; Megatron recomputes by settings of its own
        f"+{prefix}.override_config.attn_implementation": "sdpa",
    }


def _trained(prefix: str, strategy: Strategy, job: Job, platform: Platform) -> dict[str, Value]:
    engine, optimizer = f"{prefix}.megatron", f"{prefix}.optim"
    keys: dict[str, Value] = {
        **_degrees(engine, strategy, platform),
        f"{engine}.use_remove_padding": platform.remove_padding,
        f"{engine}.vanilla_mbridge": True,
        f"{engine}.dtype": "bfloat16",
        f"{engine}.seed": job.seed,
        f"{engine}.param_offload": job.engine.offload,
        f"{engine}.optimizer_offload": job.engine.offload,
        f"{engine}.dist_ckpt_optim_fully_reshardable": True,
        f"{prefix}.checkpoint.save_contents": _SAVED,
        f"{prefix}.checkpoint.load_contents": _SAVED,
        f"{optimizer}.lr": job.optimizer.learning_rate,
        f"{optimizer}.weight_decay": job.optimizer.weight_decay,
        f"{optimizer}.clip_grad": job.optimizer.clip_grad,
    }
    known = ("attention_backend", "recompute_granularity", "recompute_method", "recompute_num_layers")  # to verl's defaults
    for name, value in _transformer(strategy, job, platform).items():
        keys[f"{'' if name in known else '+'}{engine}.override_transformer_config.{name}"] = value
    return keys


def _reference(strategy: Strategy, actor: Strategy, job: Job, platform: Platform) -> dict[str, Value]:
    """verl gives the reference what the actor has, unless told otherwise."""
    engine = f"{_REF}.megatron"
    keys = _degrees(engine, strategy, platform)
    if strategy.layers != actor.layers:
        keys[f"{engine}.override_transformer_config"] = _transformer(strategy, job, platform)
    return keys


def _degrees(engine: str, strategy: Strategy, platform: Platform) -> dict[str, Value]:
    return {
        f"{engine}.tensor_model_parallel_size": strategy.tp,
        f"{engine}.pipeline_model_parallel_size": strategy.pp,
        f"{engine}.sequence_parallel": platform.sequence_parallel and strategy.tp > 1,
    }


def _transformer(strategy: Strategy, job: Job, platform: Platform) -> dict[str, str | int]:
    """Settings of Megatron's layers: attention, recomputation as the job asks, and which stage holds which layers."""
    keys: dict[str, str | int] = {"attention_backend": platform.attention}
    if job.engine.recompute == "full":
        keys |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    elif job.engine.recompute == "selective":
        keys["recompute_granularity"] = "selective"
    if strategy.pp > 1:
        keys["pipeline_model_parallel_layout"] = pipeline_layout(strategy.layers)
    return keys


def _nominal_micro(strategy: Strategy, job: Job) -> int:
    """Largest micro-batch up to the plan's that verl's divisibility check lets pass."""
    share = job.batch.sequences // strategy.dp
    return max(m for m in range(1, min(strategy.micro_batch_sequences, share) + 1) if share % m == 0)


def _literal(value: Value) -> str:
    """A value in Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no configuration value")
        return repr(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_literal(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_literal, value)) + "]"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)
