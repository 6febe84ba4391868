"""A training or inference task on all its replicas: pipelines, gradient synchronisation, optimizer."""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.model_spec import ADAM_TRAFFIC_BYTES_PER_PARAM
from stages.train.engines.simulator.collectives import by_place, ring
from stages.train.engines.simulator.graph import Graph, Label
from stages.train.engines.simulator.layers import Passes
from stages.train.engines.simulator.pipeline import add_pipeline
from stages.train.engines.simulator.setting import Setting, TaskSetting
from stages.train.engines.simulator.workload import Batch, cut


def add_inference(graph: Graph, setting: Setting, task: TaskSetting, batch: Batch, *, name: str, number: int) -> None:
    """A forward pass over the whole batch."""
    passes = Passes(setting, task)
    [replicas] = cut(batch.computed, task.strategy, mini_batches=1)
    for i, micro in enumerate(replicas):
        add_pipeline(graph, passes, task.units[i], micro, task=name, batch=number, replica=i, training=False)


def add_training(graph: Graph, setting: Setting, task: TaskSetting, batch: Batch, *, number: int) -> None:
    """Every epoch's mini-batches: the pipelines of all replicas, then one optimizer step."""
    passes = Passes(setting, task)
    steps = cut(batch.computed, task.strategy, mini_batches=setting.mini_batches)
    for _ in range(setting.job.batch.epochs):
        for replicas in steps:
            for i, micro in enumerate(replicas):
                add_pipeline(graph, passes, task.units[i], micro, task=task.name, batch=number, replica=i, training=True)
            _add_step(graph, setting, task, number)


def _add_step(graph: Graph, setting: Setting, task: TaskSetting, number: int) -> None:
    """Gradients reduced over the replicas of each stage and shard as soon as these are through; then, since the gradient norm is over all
    of them, everyone's update at once; then the new weights gathered."""
    sharded, w = setting.engine.optimizer_sharded, setting.element_bytes
    gradient = setting.engine.gradient_bytes
    rings = [(j, by_place(setting.network, [stages[j][k] for stages in task.units])) for j in range(task.strategy.pp)
             for k in range(task.strategy.tp)]
    _add_ring_passes(graph, setting, task, rings, gradient, passes=1 if sharded else 2, label=Label(task.name, "gradients", number))
    graph.add(Label(task.name, "gradient norm", number), task.devices)
    for j, ranks in rings:
        moved = task.params(j) * ADAM_TRAFFIC_BYTES_PER_PARAM / (task.strategy.dp if sharded else 1)
        for d in ranks:
            graph.add(Label(task.name, "optimizer", number), (d,), busy_s=moved / setting.devices.read_bytes_per_s((d,)))
    if sharded:
        _add_ring_passes(graph, setting, task, rings, w, passes=1, label=Label(task.name, "new weights", number))


def _add_ring_passes(
    graph: Graph, setting: Setting, task: TaskSetting, rings: Sequence[tuple[int, list[int]]], bytes_per_param: int, *, passes: int,
    label: Label,
) -> None:
    if task.strategy.dp == 1:
        return
    for j, ranks in rings:
        exchange = ring(setting.network, ranks, task.params(j) * bytes_per_param, passes=passes)
        graph.add(label, tuple(ranks), busy_s=exchange.alone_s, flows=exchange.flows)
