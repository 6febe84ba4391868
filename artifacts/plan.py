"""The plan: who does what where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field, model_validator

from artifacts.base import Document, Name, Strict, digest
from artifacts.job import TaskName


def pipeline_layout(layers: Sequence[int]) -> str:
    """Megatron's ``pipeline_model_parallel_layout`` of a layer split: ``[3, 1]`` is ``Et*3|tL`` (E embedding, t layer, L loss)."""
    return f"E{'|'.join('t' if n == 1 else f't*{n}' for n in layers)}L"


class Strategy(Strict):
    """Parallel layout of one task: ``dp`` replicas × ``pp`` stages × ``tp`` shards.

    ``ranks`` lists device ids in the order (replica, stage, shard), shard fastest: index ``(i·pp + j)·tp + k``.
    """

    dp: int = Field(ge=1)
    pp: int = Field(ge=1)
    tp: int = Field(ge=1)
    layers: list[int] = Field(description="layers of each stage; sums to the model's")
    ranks: list[Name]
    local_batch_sequences: list[int] = Field(description="sequences of the global batch each replica takes")
    micro_batch_sequences: int = Field(ge=1)

    @model_validator(mode="after")
    def _shapes(self) -> Strategy:
        need = self.dp * self.pp * self.tp
        if len(self.ranks) != need:
            raise ValueError(f"{len(self.ranks)} ranks for dp {self.dp} × pp {self.pp} × tp {self.tp} = {need}")
        if len(set(self.ranks)) != len(self.ranks):
            raise ValueError("a device holds two ranks of one task: one rank a device")
        if len(self.layers) != self.pp or min(self.layers) < 1:
            raise ValueError(f"layers {self.layers} must name at least one layer for each of {self.pp} stages")
        if len(self.local_batch_sequences) != self.dp or min(self.local_batch_sequences) < 0:
            raise ValueError(f"local_batch_sequences {self.local_batch_sequences} must name {self.dp} shares")
        return self

    def rank(self, replica: int, stage: int, shard: int) -> str:
        return self.ranks[(replica * self.pp + stage) * self.tp + shard]


class Group(Strict):
    """Tasks that share devices (co-located; they take turns), and those devices."""

    name: Name
    tasks: list[TaskName] = Field(min_length=1)
    devices: list[Name] = Field(min_length=1)
    reason: str = ""


class Plan(Document):
    """Groups, strategies, tasklet → device, splits; bound to the fingerprint of the topology it was made for."""

    artifact: ClassVar[str] = "plan"

    job: str = Field(description="identity of the job")
    topology_fingerprint: str
    groups: list[Group] = Field(min_length=1)
    tasks: dict[TaskName, Strategy]
    idle_devices: dict[Name, str] = Field(default_factory=dict, description="device → why it is left out")
    engine_hints: dict[str, str | int | float | bool] = Field(default_factory=dict)
    reasons: list[str] = Field(default_factory=list)
    solver: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        seen_devices: set[str] = set()
        seen_tasks: set[str] = set()
        for group in self.groups:
            if seen_devices & set(group.devices):
                raise ValueError(f"group {group.name} takes devices of another group: {sorted(seen_devices & set(group.devices))}")
            if seen_tasks & set(group.tasks):
                raise ValueError(f"group {group.name} repeats tasks of another group: {sorted(seen_tasks & set(group.tasks))}")
            seen_devices |= set(group.devices)
            seen_tasks |= set(group.tasks)
            for task in group.tasks:
                strategy = self.tasks.get(task)
                if strategy is None:
                    raise ValueError(f"task {task} of group {group.name} has no strategy")
                outside = set(strategy.ranks) - set(group.devices)
                if outside:
                    raise ValueError(f"task {task} uses devices outside its group {group.name}: {sorted(outside)}")
        if seen_tasks != set(self.tasks):
            raise ValueError(f"tasks without a group: {sorted(set(self.tasks) - seen_tasks)}")
        return self

    def identity(self) -> str:
        """Who does what where. Words about why, and the solver that found it, make no other plan."""
        body = self.model_dump(mode="json", exclude={"reasons": True, "solver": True, "groups": {"__all__": {"reason"}}})
        return digest(body | {"idle_devices": sorted(self.idle_devices)})

    def group_of(self, task: str) -> Group:
        return next(g for g in self.groups if task in g.tasks)
