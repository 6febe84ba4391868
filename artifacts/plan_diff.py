"""What a new plan changes against the one in force: what moves, what that costs, what it gains."""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field

from artifacts.base import Bytes, Document, Name, Seconds, Strict
from artifacts.holdings import bytes_per_param, pieces, shard_slice, task_tasklets_moved
from artifacts.job import ROLE_OF_TASK, Job, TaskName
from artifacts.plan import Plan, Strategy
from artifacts.topology import Topology


class Layout(Strict):
    """How a task is cut."""

    dp: int = Field(ge=1)
    pp: int = Field(ge=1)
    tp: int = Field(ge=1)
    layers: list[int] = Field(min_length=1)
    local_batch_sequences: list[int] = Field(min_length=1)
    micro_batch_sequences: int = Field(ge=1)

    @classmethod
    def of(cls, s: Strategy) -> Layout:
        return cls(dp=s.dp, pp=s.pp, tp=s.tp, layers=s.layers, local_batch_sequences=s.local_batch_sequences,
                   micro_batch_sequences=s.micro_batch_sequences)


class TaskMove(Strict):
    """A task whose devices or layout change."""

    task: TaskName
    before: Layout
    after: Layout
    joined: list[Name] = Field(default_factory=list, description="devices that take the task up")
    left: list[Name] = Field(default_factory=list, description="devices that give it up, or are gone")
    reranked: list[Name] = Field(default_factory=list, description="devices that keep the task as another replica, stage or shard")
    load_bytes: Bytes = Field(description="weights, and optimizer state where it is trained, that its devices do not hold yet")
    tasklets_moved: int = Field(default=0, ge=0, description="of its ranks, those whose device did not hold that stage and shard before")


class PlanDiff(Document):
    """Made after a re-plan. Times are predictions but for ``restart_s``, which was measured when the cluster was last taken up."""

    artifact: ClassVar[str] = "plan_diff"

    before: str = Field(description="version of the plan in force")
    after: str = Field(description="version of the new plan")
    causes: list[str] = Field(default_factory=list, description="what changed in the cluster, or was found out about it")
    moves: list[TaskMove] = Field(default_factory=list)
    regrouped: bool = Field(default=False, description="other tasks share devices than before")
    tasklets: int = Field(default=0, ge=0, description="ranks of all tasks under the new plan; 0: not counted")
    gone: list[Name] = Field(default_factory=list, description="devices of the old plan that are not there any more")
    taken_up: list[Name] = Field(default_factory=list, description="devices that work under the new plan and did not before")
    released: list[Name] = Field(default_factory=list, description="devices that are there and work no more")
    before_s: Seconds = Field(description="an iteration under the old plan, as predicted when it was made")
    stays_s: Seconds | None = Field(default=None, description="an iteration if the old plan stayed, on the cluster as it is now")
    cannot_stay: list[str] = Field(default_factory=list, description="why the old plan cannot stay")
    after_s: Seconds
    restart_s: Seconds | None = Field(default=None, description="from a stop to the first iteration, as last measured; None: never was")

    @property
    def changes_anything(self) -> bool:
        return bool(self.moves) or self.regrouped

    @property
    def load_bytes(self) -> int:
        return sum(move.load_bytes for move in self.moves)

    @property
    def tasklets_moved(self) -> int:
        return sum(move.tasklets_moved for move in self.moves)

    @property
    def gain(self) -> float | None:
        """How much shorter an iteration becomes, relative; None: the old plan cannot stay."""
        return None if not self.stays_s else 1 - self.after_s / self.stays_s

    @property
    def pays_after_iterations(self) -> int | None:
        """Iterations until the restart has paid for itself; None: it never does, or one of the two is not known."""
        if self.stays_s is None or self.restart_s is None or self.after_s >= self.stays_s:
            return None
        after = self.restart_s / (self.stays_s - self.after_s)
        return math.ceil(after) if math.isfinite(after) else None


def task_moves(job: Job, before: Plan, after: Plan) -> list[TaskMove]:
    """Tasks of both plans that other devices do, or otherwise cut."""
    return [_move(job, task, old, after.tasks[task]) for task, old in before.tasks.items()
            if task in after.tasks and old != after.tasks[task]]


def working_devices(plan: Plan) -> set[str]:
    return {device for strategy in plan.tasks.values() for device in strategy.ranks}


def devices_gone(plan: Plan, topology: Topology) -> list[str]:
    return sorted(working_devices(plan) - {d.id for d in topology.devices})


def _move(job: Job, task: TaskName, old: Strategy, new: Strategy) -> TaskMove:
    was, now = set(old.ranks), set(new.ranks)
    places = {d: _place(old, i) for i, d in enumerate(old.ranks)}, {d: _place(new, i) for i, d in enumerate(new.ranks)}
    return TaskMove(task=task, before=Layout.of(old), after=Layout.of(new), joined=sorted(now - was), left=sorted(was - now),
                    reranked=sorted(d for d in was & now if places[0][d] != places[1][d]), load_bytes=load_bytes(job, task, old, new),
                    tasklets_moved=task_tasklets_moved(task, old, new))


def _place(s: Strategy, index: int) -> tuple[int, int, int]:
    """(replica, stage, shard) of a rank."""
    return index // (s.pp * s.tp), index // s.tp % s.pp, index % s.tp


def load_bytes(job: Job, task: TaskName, old: Strategy, new: Strategy) -> int:
    """Bytes of the task's weights and optimizer state that its devices do not hold yet; a device keeps only what it held for this task."""
    role = ROLE_OF_TASK[task]
    model, value_head = job.model(role), role in ("critic", "reward")
    nothing: tuple[set[str], float, float] = (set(), 0.0, 0.0)
    held = {d: ({piece for piece, _ in pieces(old.layers, i // old.tp % old.pp, model, value_head=value_head)},
                *shard_slice(i % old.tp, old.tp)) for i, d in enumerate(old.ranks)}
    missing = 0.0
    for index, device in enumerate(new.ranks):
        low, high = shard_slice(index % new.tp, new.tp)
        there, begin, end = held.get(device, nothing)
        common = max(0.0, min(high, end) - max(low, begin))
        for piece, size in pieces(new.layers, index // new.tp % new.pp, model, value_head=value_head):
            missing += size * (high - low - (common if piece in there else 0.0))
    return round(missing * sum(bytes_per_param(job, task)))
