"""How the published runs were run (``data/runs.yaml``) and on what (``data/gpus.yaml``, ``data/models.yaml``), each with its source."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import yaml
from pydantic import Field

from artifacts.base import Strict
from artifacts.catalog import models
from artifacts.model_spec import ModelSpec
from tests.benchmarks.published.rows import DATA, Row


class Match(Strict):
    """A part of each of a row's fields; empty: any."""

    source: str
    gpu: str = ""
    model: str = ""
    algorithm: str = ""
    notes: str = ""

    def fits(self, row: Row) -> bool:
        return (
            self.source in row.source
            and self.gpu in row.gpu
            and self.model in row.model
            and self.algorithm in ("", row.algorithm)
            and self.notes in row.notes
        )


class Run(Strict):
    """What a row leaves unsaid about its run."""

    match: Match
    part: str = ""
    machines: list[str] = Field(default_factory=list, description="the part in each machine, in rank order; empty: ``part`` in all")
    gpus_per_machine: int
    between_gb_per_s: float = Field(default=12.5, description="between two machines, all its adapters together, one direction")
    between_latency_us: float = 5.0
    algorithm: Literal["ppo", "grpo"] = "ppo"
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    recompute: Literal["none", "full"] = "none"
    flash: bool = True
    sequence_parallel: bool = False
    optimizer_sharded: bool = True
    gradient_bytes: int = 4
    fsdp: bool = False
    offload: bool = False
    layers: list[int] = Field(default_factory=list, description="of each stage; empty: equal")
    responses_per_prompt: int = 0
    mini_batch_prompts: int = 0
    micro: int = Field(default=0, description="sequences of a training micro-batch on a rank; 0: the row's notes say")
    critic_micro: int = 0
    log_prob_micro: int = 0
    rollout_tp: int = Field(default=0, description="0: the row's tp is the rollout's")
    prompt: tuple[float, int] | None = Field(default=None, description="mean and largest; unset: all as the row says")
    response: tuple[float, int] | None = None
    response_max: int = Field(default=0, description="where the row states the mean")
    in_flight: int = 0
    serving: Literal["eager", "graphs", "runtime"] = "graphs"
    why: str = Field(min_length=1)


class Part(Strict):
    """A GPU as a run used it; rates at the run's precision, one direction."""

    vendor: Literal["nvidia", "amd"]
    tflops: float
    achieved_tflops: float = 0.0
    memory_gb: float
    memory_gb_per_s: float
    fabric_gb_per_s: float = 0.0
    pairs_gb_per_s: dict[int, float] = Field(default_factory=dict)
    latency_us: float
    source: str = Field(min_length=1)


class SizedRates(Strict):
    """Rates of a catalogue part by size: TFLOP/s by width, then by rows (``tokens``); GB/s."""

    tokens: list[int]
    gemm_tflops: dict[int, list[float]]
    weight_read_gb_per_s: float
    allreduce_gb_per_s: dict[int, float]
    source: str = Field(min_length=1)


@cache
def runs() -> tuple[Run, ...]:
    return tuple(Run.model_validate(entry) for entry in _load("runs.yaml"))


@cache
def own_parts() -> dict[str, Part]:
    return {name: Part.model_validate(fields) for name, fields in _load("gpus.yaml").items()}


@cache
def sized_rates() -> dict[str, SizedRates]:
    return {name: SizedRates.model_validate(fields) for name, fields in _load("rates.yaml").items()}


@cache
def known_models() -> dict[str, ModelSpec]:
    """Models of the catalogue and of ``models.yaml``."""
    own = {name: ModelSpec.model_validate({"name": _safe(name), **fields}) for name, fields in _load("models.yaml").items()}
    return dict(models()) | own


def run_of(row: Row) -> Run | None:
    return next((run for run in runs() if run.match.fits(row)), None)


def _safe(name: str) -> str:
    return name.replace(" ", "-").replace("=", "")


def _load(name: str) -> Any:
    return yaml.safe_load((DATA / name).read_text(encoding="utf-8"))
