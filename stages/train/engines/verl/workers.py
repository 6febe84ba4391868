"""verl's workers, told the plan's shares: a replica's local batch, mini-batches and micro-batches may differ from its neighbours'."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.utils.metric import Metric
from verl.workers.engine_workers import TrainingWorker

from stages.train.engines.verl.dispatch import PIECES, TOTAL, by_shares
from stages.train.engines.verl.placement import here
from stages.train.engines.verl.platforms import on_cpu
from stages.train.engines.verl.reward import at_the_end

if on_cpu():
    from stages.train.engines.verl.plugin_cpu import load_megatron
else:
    from stages.train.engines.verl.plugin import load_megatron
load_megatron()

_modes: Any = Dispatch  # filled when verl is imported, so its members have no static names
EVERY_RANK = _modes.ONE_TO_ALL


class Meter:
    """Sequences, tokens and seconds of each task since they were last taken."""

    def __init__(self) -> None:
        self._work: dict[str, dict[str, float]] = {}

    def measure(self, task: str, data: Any, call: Any) -> Any:
        tokens = int(data["input_ids"].offsets()[-1]) if "input_ids" in data else 0
        sequences = len(data)
        started = time.monotonic()
        output = call(data)
        done = self._work.setdefault(task, {"sequences": 0, "tokens": 0, "seconds": 0.0})
        for name, value in (("sequences", sequences), ("tokens", tokens), ("seconds", time.monotonic() - started)):
            done[name] += value
        return output.cpu() if output is not None else None

    def take(self) -> dict[str, dict[str, float]]:
        work, self._work = self._work, {}
        return work


def _local_mini_batches(data: Any, *, replicas: int) -> None:
    """Tell verl how large mini- and micro-batches are here. It divides the global size by the number of replicas; a share is no quotient.

    Their numbers are the same on every replica, their sizes follow the share.
    """
    steps = tu.pop(data, key=TOTAL) // tu.pop(data, key="mini_batch_size")
    if len(data) % steps:
        raise ValueError(f"a local batch of {len(data)} sequences does not divide into {steps} mini-batches")
    _local_micro_batches(data, len(data) // steps)
    tu.assign_non_tensor(data, mini_batch_size=len(data) // steps * replicas)


def _local_micro_batches(data: Any, sequences: int) -> None:
    """As many as the plan says. A worker that is no actor's takes micro-batches by their tokens unless told: verl passes its switch on only
    to the actor and the reference."""
    tu.assign_non_tensor(data, micro_batch_size_per_gpu=-(-sequences // tu.pop(data, key=PIECES)), use_dynamic_bsz=False)


def _read(path: str) -> str:
    """The file's text; empty where this machine does not have it."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


class PlannedTrainingWorker(TrainingWorker):
    """Trains one model; used inside the actor's worker, and by itself for the critic."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._meter = Meter()

    def _postprocess_output(self, output: Any, **kwargs: Any) -> Any:
        # verl averages metrics over replicas micro-batch by micro-batch, so it wants equally many everywhere; sums and means may be
        # taken on each replica first.
        for name, value in output["metrics"].items():
            if isinstance(value, Metric):
                output["metrics"][name] = Metric(value.aggregation, value=value.aggregate())
        return super()._postprocess_output(output, **kwargs)

    @register(dispatch_mode=by_shares("train"), blocking=False)
    def train_mini_batch(self, data: Any) -> Any:
        if TOTAL not in data.keys():  # noqa: SIM118 - a TensorDict is not asked with `in`
            return super().train_mini_batch(data)  # the actor's worker has done it already
        _local_mini_batches(data, replicas=self.engine.get_data_parallel_size())
        return self._meter.measure("critic_training", data, super().train_mini_batch)

    @register(dispatch_mode=by_shares("train"), blocking=False)
    def infer_batch(self, data: Any) -> Any:
        _local_micro_batches(data, len(data))
        return self._meter.measure("critic_inference", data, super().infer_batch)

    @register(dispatch_mode=EVERY_RANK)
    def hetrl_placement(self) -> dict[str, Any]:
        return here()

    @register(dispatch_mode=EVERY_RANK)
    def hetrl_reads(self, path: str) -> str:
        return _read(path)

    @register(dispatch_mode=EVERY_RANK)
    def hetrl_work(self) -> dict[str, dict[str, float]]:
        return self._meter.take()


class PlannedRewardWorker(PlannedTrainingWorker):
    """Scores whole sequences with one pass of a reward model: its head's value at the last token."""

    @register(dispatch_mode=by_shares("train"), blocking=False)
    def compute_scores(self, data: Any) -> Any:
        _local_micro_batches(data, len(data))
        return self._meter.measure("reward_inference", data, self._scores)

    def _scores(self, data: Any) -> Any:
        responses = data["responses"].offsets().diff()
        output = TrainingWorker.infer_batch(self, data)
        return None if output is None else at_the_end(output["values"], responses)


class PlannedActorWorker(DetachActorWorker):
    """Actor, reference and rollout hand-over of one rank; keeps copies of the actor where verl's asynchronous trainer asks for them."""

    actor: Any
    ref: Any
    actor_worker_cls = PlannedTrainingWorker
    ref_worker_cls = PlannedTrainingWorker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._meter = Meter()

    @register(dispatch_mode=by_shares("ref"))
    def compute_ref_log_prob(self, data: Any) -> Any:
        return self._meter.measure("reference_inference", data, lambda d: self.ref.infer_batch(data=d))

    @register(dispatch_mode=by_shares("actor"))
    def compute_log_prob(self, data: Any) -> Any:
        return self._meter.measure("actor_log_prob", data, self.actor.infer_batch)

    @register(dispatch_mode=by_shares("actor"))
    def update_actor(self, data: Any) -> Any:
        _local_mini_batches(data, replicas=self.actor.engine.get_data_parallel_size())
        return self._meter.measure("actor_training", data, lambda d: self.actor.train_mini_batch(data=d))

    @register(dispatch_mode=EVERY_RANK)
    def hetrl_placement(self) -> dict[str, Any]:
        return here()

    @register(dispatch_mode=EVERY_RANK)
    def hetrl_reads(self, path: str) -> str:
        return _read(path)

    @register(dispatch_mode=EVERY_RANK)
    def hetrl_work(self) -> dict[str, dict[str, float]]:
        return self._meter.take()

    @register(dispatch_mode=EVERY_RANK)
    def hetrl_weights(self) -> dict[str, Any] | None:
        """The actor's parameters by their Hugging Face names in bfloat16, the precision they were trained in; from the first rank."""
        first = torch.distributed.get_rank() == 0
        named, _ = self.actor.engine.get_per_tensor_param()
        kept = {}
        for name, value in named:  # gathering a tensor is a collective: every rank reads to the end
            if first:
                kept[name] = value.detach().to("cpu", torch.bfloat16).clone()
        return kept if first else None
