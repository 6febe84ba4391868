"""What each engine can run, as data (``engines.yaml``): the rules a plan must keep."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Literal

from pydantic import Field

from artifacts.base import Bytes, Strict
from artifacts.catalog import load_yaml
from artifacts.errors import InputError
from artifacts.job import Engine, TaskName

Vendor = Literal["nvidia", "amd", "cpu"]
Divided = Literal["heads", "kv_heads", "intermediate", "vocab"]
_CPU_BUILD = "-cpu"


class SameStrategy(Strict):
    """``task`` takes the strategy of ``as``: always, or only when both sit in one group."""

    task: TaskName
    as_: TaskName = Field(alias="as")
    when: Literal["always", "in_group"]


class DecodeHost(Strict):
    """Host time of one decode step of c sequences: ``gap_s`` + c·``sequence_s`` while the device waits, at least ``layer_s`` a layer."""

    gap_s: float = Field(ge=0)
    sequence_s: float = Field(ge=0)
    layer_s: float = Field(ge=0, description="launching a layer's operations one by one; 0: replayed from a graph")

    def slower(self, times: float) -> DecodeHost:
        return DecodeHost(gap_s=times * self.gap_s, sequence_s=times * self.sequence_s, layer_s=times * self.layer_s)


class RolloutCapability(Strict):
    """How generation may be laid out. Pipeline stages: always one."""

    follows_actor: bool = Field(description="one replica on each rank of the actor, in the actor's rank order")
    max_tp: int = Field(ge=1)
    tp_divides: list[Divided]
    continuous_batching: bool = Field(description="false: a batch runs until its longest response ends")
    sequences_in_flight: int = Field(ge=1, description="the server's own cap for one replica")
    prefill_tokens: int = Field(ge=0, description="tokens of one prefill pass; 0: the prompts of the whole batch at once")
    alone_in_async: bool = Field(description="asynchronous rollout needs a group of its own")
    head_dims: list[int] = Field(default_factory=list, description="head sizes the server's attention has; empty: any")
    tp_within_machine: bool = Field(default=False, description="the shards of one replica sit on one machine")
    fused_operations: bool = Field(description="norms, gates and rotary embeddings are one kernel each")
    host: DecodeHost


class WeightExport(Strict):
    """What the actor's host does with each weight tensor of an update, beside moving its bytes. 0: not measured on this engine."""

    tensor_s: float = Field(default=0.0, ge=0, description="host time of one tensor")
    collectives: int = Field(default=0, ge=0, description="one after the other, for one tensor, where the actor has pipeline stages: its "
                             "name, its shape, itself. Each takes a message there and back between neighbouring stages")
    collective_s: float = Field(default=0.0, ge=0, description="host time of one of them")


class EngineMemory(Strict):
    """Memory that no formula of the model gives."""

    reserve: float = Field(ge=0, lt=1, description="fraction of a device that is never planned")
    per_rank_bytes: Bytes = Field(description="process, context and communication buffers of one rank")
    generation_bytes: Bytes = Field(description="activations and graphs of one generation engine")


class EngineCapability(Strict):
    """The rules of one engine with one rollout server."""

    engine: str
    rollout_server: Literal["hf", "vllm"]
    vendors: list[Vendor]
    modes: list[Literal["sync", "async"]]
    share_group: list[list[TaskName]] = Field(description="tasks that must share a group")
    same_strategy: list[SameStrategy]
    one_layout_per_group: bool = Field(description="training and inference tasks of a group share dp, pp, tp and ranks")
    tp_divides: list[Divided]
    rollout: RolloutCapability
    dp_divides: list[Literal["sequences", "mini_batch_sequences"]] = Field(
        description="what the replicas of a trained or inferred model must divide"
    )
    uneven_layers: bool
    uneven_batches: bool = Field(description="replicas may take unequal shares; the number of micro-batches is equal on all of them")
    reward_model: bool
    removes_padding: bool = Field(description="false: every sequence is computed at its maximum length")
    optimizer_sharded: bool = Field(description="optimizer state divided over the replicas")
    gradient_bytes: int = Field(ge=1, le=8)
    flash_attention: bool = Field(description="the attention matrix is never stored")
    fused_operations: bool = Field(description="norms, gates and rotary embeddings are one kernel each")
    sequence_parallel: bool = Field(description="norms and residuals are divided over the tensor-parallel shards")
    divided_hops: bool = Field(description="each tensor-parallel shard sends the next pipeline stage its part of the activations, not all")
    fully_sharded: bool = Field(description="weights and gradients divided over the replicas too, gathered for every pass")
    launch_layer_s: float = Field(ge=0, description="host time to launch the operations of one layer and pass one by one")
    launch_token_s: float = Field(default=0, ge=0, description="… more for each token of the micro-batch: what a CPU's small operations "
                                  "take beyond their bytes")
    host_flops_per_s: float = Field(default=0, ge=0, description="best matmul rate of the CPU device on which the host's times "
                                    "were measured: on another they are in proportion to it; 0: the host is apart from the device")
    hop_messages: int = Field(default=1, ge=1, description="messages, one way, that wait for each other when a stage hands "
                              "a micro-batch to the next")
    export: WeightExport = WeightExport()
    memory: EngineMemory
    source: str


@cache
def engines() -> dict[tuple[str, str], EngineCapability]:
    """All engines of the catalog, by (engine, row). A server whose CPU build has rules of its own has a second row, ``<server>-cpu``."""
    found = {}
    for engine, rows in load_yaml("engines.yaml").items():
        for row, fields in rows.items():
            server = row.removesuffix(_CPU_BUILD)
            found[engine, row] = EngineCapability.model_validate({"engine": engine, "rollout_server": server, **dict(fields)})  # type: ignore[call-overload]
    return found


def resolve_engine(engine: Engine, vendors: Iterable[str]) -> EngineCapability:
    """The capability a job's engine has on devices of these vendors; ``auto`` is vLLM on GPUs and the small HF server on CPUs.

    Raises:
        InputError: the vendors are mixed between CPU and GPU, or the rollout server does not run on them.
    """
    kinds = set(vendors)
    server = engine.rollout
    if server == "auto":
        server = "hf" if kinds == {"cpu"} else "vllm"
    row = server + _CPU_BUILD if kinds == {"cpu"} and (engine.name, server + _CPU_BUILD) in engines() else server
    capability = engines()[engine.name, row]
    wrong = sorted(kinds - set(capability.vendors))
    if wrong:
        raise InputError(
            f"engine {engine.name} with rollout {server!r} does not run on {', '.join(wrong)} devices",
            fix="set engine.rollout to 'auto', or leave those machines out of the cluster",
        )
    return capability
