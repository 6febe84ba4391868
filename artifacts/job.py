"""The job: what the user wants trained, how, and for what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from artifacts.base import Document, Name, Strict, read_text
from artifacts.errors import InputError
from artifacts.model_spec import ModelSpec
from artifacts.yaml_text import read_yaml

Algorithm = Literal["ppo", "grpo"]
TaskName = Literal["rollout", "reward_inference", "reference_inference", "critic_inference", "actor_training", "critic_training"]
Role = Literal["actor", "reference", "critic", "reward"]

ROLE_OF_TASK: dict[str, Role] = {
    "rollout": "actor",
    "reward_inference": "reward",
    "reference_inference": "reference",
    "critic_inference": "critic",
    "actor_training": "actor",
    "critic_training": "critic",
}
TRAINING_TASKS = frozenset({"actor_training", "critic_training"})


class Lengths(Strict):
    """A length distribution in tokens: what is expected, and the bound that is never passed."""

    mean: float = Field(gt=0, le=10_000_000)
    max: int = Field(ge=1, le=10_000_000)
    quantiles: dict[Annotated[float, Field(gt=0, lt=1)], Annotated[int, Field(ge=0, le=10_000_000)]] = Field(
        default_factory=dict, description="share of the sequences that are no longer → tokens, as measured; empty: a shape is assumed"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Lengths:
        if self.mean > self.max:
            raise ValueError(f"mean {self.mean:g} is above max {self.max}: raise max or lower mean")
        lengths = [tokens for _, tokens in sorted(self.quantiles.items())]
        if lengths != sorted(lengths) or (lengths and lengths[-1] > self.max):
            raise ValueError(f"quantiles {self.quantiles} must grow and stay within max {self.max}")
        return self


class Dataset(Strict):
    """Where prompts come from. ``reasoning-gym`` generates verifiable tasks offline; ``parquet`` reads files in verl's format."""

    kind: Literal["reasoning-gym", "parquet"] = "reasoning-gym"
    task: str = Field(default="basic_arithmetic", pattern=r"^[a-z0-9_]{1,64}$", description="reasoning-gym's dataset name")
    options: dict[str, int | float | str | bool] = Field(default_factory=dict, description="the dataset's own settings")
    size: int = Field(default=256, ge=1, le=10_000_000)
    train_file: str = ""
    validation_file: str = ""

    @model_validator(mode="after")
    def _files_where_needed(self) -> Dataset:
        if self.kind == "parquet" and not self.train_file:
            raise ValueError("kind 'parquet' needs train_file: name a parquet file in verl's format")
        return self


class Batch(Strict):
    """Sizes of one iteration. A global batch is prompts × responses_per_prompt sequences."""

    prompts: int = Field(ge=1, le=1_000_000)
    responses_per_prompt: int = Field(default=8, ge=1, le=100_000)
    mini_batch_prompts: int = Field(default=0, ge=0, description="prompts per optimizer step; 0: all of them")
    micro_batch_sequences: int = Field(default=4, ge=1, description="sequences per rank and forward pass")
    epochs: int = Field(default=1, ge=1, le=1000, description="passes over the batch per iteration")

    @model_validator(mode="after")
    def _can_be(self) -> Batch:
        mini = self.mini_batch_prompts or self.prompts
        if mini > self.prompts:
            raise ValueError(f"mini_batch_prompts {mini} is more than prompts {self.prompts}: lower it to a divisor of {self.prompts}")
        if self.prompts % mini:
            raise ValueError(f"mini_batch_prompts {mini} does not divide prompts {self.prompts}: choose a divisor")
        if self.micro_batch_sequences > mini * self.responses_per_prompt:
            raise ValueError(
                f"micro_batch_sequences {self.micro_batch_sequences} is more than a mini-batch holds "
                f"({mini} prompts × {self.responses_per_prompt} responses = {mini * self.responses_per_prompt}): lower it"
            )
        return self

    @property
    def sequences(self) -> int:
        return self.prompts * self.responses_per_prompt

    @property
    def mini_batch_sequences(self) -> int:
        return (self.mini_batch_prompts or self.prompts) * self.responses_per_prompt

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps per iteration."""
        return self.sequences // self.mini_batch_sequences * self.epochs


class Optimizer(Strict):
    name: Literal["adam"] = "adam"
    learning_rate: float = Field(default=1e-6, gt=0, lt=10)
    weight_decay: float = Field(default=0.0, ge=0, lt=10)
    clip_grad: float = Field(default=1.0, gt=0)


class Engine(Strict):
    """What runs the training: verl, on GPUs or on this CPU."""

    name: Literal["verl"] = "verl"
    rollout: Literal["auto", "vllm", "hf"] = Field(default="auto", description="auto: vLLM on GPUs, the small Hugging Face server on a CPU")
    offload: bool = False
    recompute: Literal["none", "selective", "full"] = "none"


class Kl(Strict):
    """KL regularisation against the reference model."""

    coefficient: float = Field(default=0.001, ge=0, le=10)


class Constraints(Strict):
    """What the user fixes; a plan that breaks one is refused by name."""

    pin: dict[TaskName, list[Name]] = Field(default_factory=dict, description="task → machines it may use")
    forbid_regions: list[str] = Field(default_factory=list)
    keep_data_in: list[str] = Field(
        default_factory=list, description="regions that prompts and responses may not leave, so every task runs there; empty: anywhere"
    )
    forbid_devices: list[Name] = Field(default_factory=list, description="devices or whole machines that no task may use")
    max_devices: int | None = Field(default=None, ge=1, le=1_000_000, description="devices a plan may use; empty: all that are usable")
    fix: dict[TaskName, dict[Literal["dp", "pp", "tp"], Annotated[int, Field(ge=1)]]] = Field(default_factory=dict)


class Job(Document):
    """One RL post-training job."""

    artifact: ClassVar[str] = "job"

    name: Name
    algorithm: Algorithm = "grpo"
    mode: Literal["sync", "async"] = "sync"
    staleness: int = Field(default=1, ge=1, le=64, description="largest number of updates a rollout may lag behind (async)")
    models: dict[Role, ModelSpec] = Field(description="model of each role; reference, critic and reward default to the actor's")
    reward: Literal["rule", "model"] = Field(default="rule", description="rule: the dataset's own scorer on CPU; model: a reward model")
    dataset: Dataset = Dataset()
    batch: Batch
    prompt_tokens: Lengths
    response_tokens: Lengths
    iterations: int = Field(default=5, ge=1, le=10_000_000)
    checkpoint_every: int = Field(default=10, ge=0, le=10_000_000, description="iterations between checkpoints for a rerun; 0: none")
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    optimizer: Optimizer = Optimizer()
    kl: Kl = Kl()
    engine: Engine = Engine()
    objective: Literal["throughput", "cost"] = "throughput"
    constraints: Constraints = Constraints()
    seed: int = Field(default=0, ge=0, le=2**31 - 1)

    @model_validator(mode="after")
    def _roles(self) -> Job:
        if "actor" not in self.models:
            raise ValueError("models.actor is missing: name a model of the catalog or give its architecture numbers")
        if self.algorithm == "grpo" and self.batch.responses_per_prompt < 2:
            raise ValueError("grpo compares responses of one prompt: batch.responses_per_prompt must be at least 2")
        return self

    def model(self, role: Role) -> ModelSpec:
        return self.models.get(role, self.models["actor"])

    def tasks(self) -> list[TaskName]:
        """The tasks that need devices, in dependency order. A rule reward runs on the CPU of whoever drives."""
        tasks: list[TaskName] = ["rollout"]
        if self.reward == "model":
            tasks.append("reward_inference")
        tasks.append("reference_inference")
        if self.algorithm == "ppo":
            tasks += ["critic_inference", "actor_training", "critic_training"]
        else:
            tasks.append("actor_training")
        return tasks

    @property
    def sequence_tokens_mean(self) -> float:
        return self.prompt_tokens.mean + self.response_tokens.mean

    @property
    def sequence_tokens_max(self) -> int:
        return self.prompt_tokens.max + self.response_tokens.max


def load_job(path: str, overrides: list[str] | None = None) -> Job:
    """A job from the user's YAML. Model names are looked up in the catalog; ``a.b=c`` overrides change single fields.

    Folders and files that it names, and that are there, are named in full: stages run in folders of their own.

    Raises:
        InputError: the file cannot be read, is not YAML, or is not a job; the message says where and what to do.
    """
    job = parse_job(read_text(path), where=str(path), overrides=overrides)
    models = {role: model.model_copy(update={"hf_id": _in_full(model.hf_id)}) for role, model in job.models.items()}
    files = {name: _in_full(getattr(job.dataset, name)) for name in ("train_file", "validation_file")}
    return job.model_copy(update={"models": models, "dataset": job.dataset.model_copy(update=files)})


def _in_full(name: str) -> str:
    path = Path(name).expanduser()
    return str(path.absolute()) if name and path.exists() else name


def parse_job(text: str, *, where: str, overrides: list[str] | None = None) -> Job:
    """Like :func:`load_job`, of a text; ``where`` is what messages call it."""
    from artifacts.catalog import model_by_name

    data = read_yaml(text, where=where)
    if not isinstance(data, dict):
        raise InputError(f"{where} holds {type(data).__name__}, not a job", fix="start from infra/jobs/tiny-grpo.yaml")
    for override in overrides or []:
        _set(data, override)
    models = data.get("models")
    if isinstance(models, dict):
        data["models"] = {role: model_by_name(m, where=f"{where}: models.{role}").model_dump() if isinstance(m, str) else m
                          for role, m in models.items()}
    return Job.parse(data, where=where)


def _set(data: dict[str, Any], override: str) -> None:
    path, sep, text = override.partition("=")
    keys = path.split(".")
    if not sep or not all(keys):
        raise InputError(f"--set {override!r} is not of the form a.b=value", fix="for example --set batch.prompts=16")
    value = read_yaml(text, where=f"the value of --set {path[:60]}")
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise InputError(f"--set {override!r}: {key} is not a section", fix="name a field inside a section of the job")
    data[keys[-1]] = value
