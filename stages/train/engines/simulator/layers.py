"""Seconds and collectives of one pass of a micro-batch through the layers of a pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from artifacts.model_spec import SOFTMAX_BACKWARD_BYTES, SOFTMAX_FORWARD_BYTES
from stages.train.engines.simulator.collectives import Exchange, hops, ring
from stages.train.engines.simulator.setting import Setting, TaskSetting, Unit
from stages.train.engines.simulator.workload import MicroBatch


@dataclass(frozen=True)
class Pass:
    """``rounds`` times: ``busy_s`` of work, then the exchange. A round is a layer with its all-reduces in one; where these stay inside a
    machine nobody else can slow them, and the pass is one round."""

    rounds: int
    busy_s: float
    exchange: Exchange


class Passes:
    """Passes of one task, forward or backward, on any of its stages."""

    def __init__(self, setting: Setting, task: TaskSetting) -> None:
        self._setting, self._task = setting, task
        self._recompute = setting.job.engine.recompute == "full"
        model = task.model
        self._layer_flops_a_token, self._layer_flops_a_square = model.layer_matmul_flops(1.0), model.layer_attention_flops(1.0)
        self._head_flops_a_token = model.head_flops(1.0, value_head=task.value_head)
        self._head_shards = 1 if task.value_head else task.strategy.tp
        self._layer_bytes = model.layer_params() * setting.element_bytes / task.strategy.tp
        self._activation_bytes_a_token = float(model.hidden * setting.element_bytes)
        self._engine, self._element_bytes = setting.engine, setting.element_bytes
        whole, divided = model.pointwise_elements(fused=setting.engine.fused_operations)
        self._whole_elements = whole / (task.strategy.tp if setting.engine.sequence_parallel else 1)
        self._divided_elements = divided
        self._read_bytes_per_s = cache(setting.devices.read_bytes_per_s)
        self._host_slowness = cache(partial(setting.devices.host_slowness, stated_flops_per_s=setting.engine.host_flops_per_s))

    def forward(self, unit: Unit, stage: int, micro: MicroBatch) -> Pass:
        return self._pass(unit, stage, micro, work=1, passes=1, head=1, softmax=SOFTMAX_FORWARD_BYTES)

    def backward(self, unit: Unit, stage: int, micro: MicroBatch) -> Pass:
        """Gradients of inputs and of weights, each as much as a forward pass; that pass again where activations are recomputed."""
        again = 1 if self._recompute else 0
        return self._pass(unit, stage, micro, work=2 + again, passes=1 + again, head=2, softmax=SOFTMAX_BACKWARD_BYTES)

    def hop(self, sender: Unit, receiver: Unit, micro: MicroBatch) -> list[tuple[int, int, float]]:
        """Activations (or their gradients) of a micro-batch between stages, shard by shard: (from, to, bytes)."""
        each = micro.tokens * self._activation_bytes_a_token / (len(sender) if self._engine.divided_hops else 1)
        return [(a, b, each) for a, b in zip(sender, receiver, strict=True)]

    def exchange(self, pairs: list[tuple[int, int, float]]) -> Exchange:
        return hops(self._setting.network, pairs, messages=self._engine.hop_messages)

    def _pass(self, unit: Unit, stage: int, micro: MicroBatch, *, work: int, passes: int, head: int, softmax: int) -> Pass:
        """``work``: forward passes whose FLOPs and traffic it has. A layer takes at least the host's time to launch each of ``passes``; a
        device that is its own host first launches, then computes."""
        strategy, tp = self._task.strategy, len(unit)
        layers = strategy.layers[stage]
        rate = self._setting.devices.flops_per_s(unit, tokens=micro.tokens, hidden=self._task.model.hidden)
        memory, model = self._read_bytes_per_s(unit), self._task.model
        masked = 1 if self._engine.flash_attention else 2
        flops = micro.tokens * self._layer_flops_a_token + masked * micro.squares * self._layer_flops_a_square
        elements = micro.tokens * (self._whole_elements + self._divided_elements / tp)
        if not self._engine.flash_attention:
            elements += model.score_elements(micro.squares) / tp
        busy = work * (max(flops / tp / rate, self._layer_bytes / memory) + elements * self._element_bytes / memory)
        reduce = ring(self._setting.network, unit, micro.tokens * self._activation_bytes_a_token, passes=2 * 2 * passes)
        launch = passes * (self._engine.launch_layer_s + self._engine.launch_token_s * micro.tokens) * self._host_slowness(unit)
        busy = busy + launch if self._engine.host_flops_per_s else max(busy, launch - reduce.alone_s)
        if stage == strategy.pp - 1:
            busy += head * micro.tokens * self._head_flops_a_token / self._head_shards / rate / layers
            if not self._task.value_head:
                busy += softmax * micro.tokens * model.vocab / tp / memory / layers
        return Pass(rounds=layers, busy_s=busy + reduce.alone_s, exchange=reduce)
