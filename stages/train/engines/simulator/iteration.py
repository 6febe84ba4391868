"""Iterations as activities: which task waits for which, in synchronous and in asynchronous mode.

Synchronous: rollout, then inference, then training, each for the whole batch, then the weight update; the next iteration begins when all
have ended, as verl's driver has it. Asynchronous: rollout of later batches goes on beside inference and training of this one, on devices
of its own, never more than ``staleness`` updates behind; rollout replicas take new weights between batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from artifacts.job import TRAINING_TASKS
from stages.train.engines.simulator.graph import Graph, Label
from stages.train.engines.simulator.memory import state_bytes
from stages.train.engines.simulator.modeltasks import add_inference, add_training
from stages.train.engines.simulator.rollout import add_rollout
from stages.train.engines.simulator.setting import ACTOR_LOG_PROB, Setting
from stages.train.engines.simulator.weights import add_weight_update
from stages.train.engines.simulator.workload import Batch, sample

INFERENCE = ("reward_inference", "reference_inference", "critic_inference")
TRAINING = ("actor_training", "critic_training")


@dataclass(frozen=True, eq=False)
class Iterations:
    """Batches ``first`` … as one graph. ``ends[b]`` is the activity with which batch b's iteration ends."""

    graph: Graph
    batches: dict[int, Batch]
    ends: dict[int, int]


def build(setting: Setting, *, first: int, count: int) -> Iterations:
    """``count`` iterations from batch ``first`` (0 is the job's first). The first of them starts with its rollout."""
    lead = setting.job.staleness if setting.job.mode == "async" else 0
    shares, padded = setting.tasks["actor_training"].strategy.local_batch_sequences, not setting.engine.removes_padding
    batches = {b: sample(setting.job, b, shares=shares, padded=padded) for b in range(first, first + count + lead)}
    builder = _Builder(setting, batches)
    for b in range(first, first + lead):
        builder.rollout(b)
    for b in range(first, first + count):
        # Rollout of batch b + lead takes the weights of update b − 1: its devices are free for the next update when it has ended.
        builder.rollout(b + lead)
        builder.learn(b)
        builder.update(b)
    return Iterations(builder.graph, batches, builder.ends)


class _Builder:
    def __init__(self, setting: Setting, batches: dict[int, Batch]) -> None:
        self.graph = Graph(setting.network.capacity)
        self.batches = batches
        self.ends: dict[int, int] = {}
        self._setting = setting
        self._generated: dict[int, int] = {}

    def rollout(self, b: int) -> None:
        devices = self._setting.tasks["rollout"].devices
        self.graph.add(Label("rollout", "begin", b), devices)
        self._move_in("rollout", "rollout", b)
        add_rollout(self.graph, self._setting, self.batches[b], number=b)
        self._move_out("rollout", "rollout", b)
        self._generated[b] = self.graph.add(Label("rollout", "end", b), devices)

    def learn(self, b: int) -> None:
        """Inference once the batch is generated, training once all inference is done: advantages need every one of its results."""
        done = []
        for name in (ACTOR_LOG_PROB, *(t for t in INFERENCE if t in self._setting.tasks)):
            task = self._setting.tasks["actor_training" if name == ACTOR_LOG_PROB else name]
            self.graph.add(Label(name, "begin", b), task.devices, after=[self._generated[b]])
            self._move_in(name, task.name, b)
            add_inference(self.graph, self._setting, task, self.batches[b], name=name, number=b)
            self._move_out(name, task.name, b)
            done.append(self.graph.add(Label(name, "end", b), task.devices))
        for name in (t for t in TRAINING if t in self._setting.tasks):
            task = self._setting.tasks[name]
            self.graph.add(Label(name, "begin", b), task.devices, after=done)
            self._move_in(name, name, b)
            add_training(self.graph, self._setting, task, self.batches[b], number=b)
            self._move_out(name, name, b)
            self.graph.add(Label(name, "end", b), task.devices)

    def update(self, b: int) -> None:
        add_weight_update(self.graph, self._setting, number=b)
        asynchronous = self._setting.job.mode == "async"
        waits = [t for name, t in self._setting.tasks.items() if not (asynchronous and name == "rollout")]
        over = tuple(sorted({d for t in waits for d in t.devices}))
        self.ends[b] = self.graph.add(Label("iteration", "end", b), over)

    def _move_in(self, name: str, task: str, b: int) -> None:
        self._move(name, task, b, "move in")

    def _move_out(self, name: str, task: str, b: int) -> None:
        self._move(name, task, b, "move out")

    def _move(self, name: str, task: str, b: int, what: str) -> None:
        """Between the host's memory and the device, where roles are offloaded between their tasks."""
        setting, of = self._setting, self._setting.tasks[task]
        if not setting.job.engine.offload:
            return
        for i, stages in enumerate(of.units):
            for j, unit in enumerate(stages):
                bytes_ = setting.element_bytes * of.params(j) if task == "rollout" else state_bytes(setting, of, j)
                if name == ACTOR_LOG_PROB and task in TRAINING_TASKS:
                    bytes_ = setting.element_bytes * of.params(j)
                for d in unit:
                    rate = setting.devices.host_bytes_per_s(d)
                    if bytes_ and rate:
                        self.graph.add(Label(name, what, b, i), (d,), busy_s=bytes_ / rate)
