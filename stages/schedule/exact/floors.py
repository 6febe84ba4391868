"""What no layout can beat: the time of tasks on some devices if nothing were communicated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.compute import head_forward_flops, layer_forward_flops, training_multiplier
from stages.schedule.exact.cells import Cells, Vector
from stages.schedule.problem import ACTOR_LOG_PROB, Problem, Task

Floats = NDArray[np.float64]
PHASES = 3


def combine(problem: Problem, phases: Sequence[Floats] | Sequence[float]) -> Floats:
    """Seconds of an iteration from those of its phases, without the weight update."""
    rollout, inference, training = phases
    if problem.job.mode == "async":
        return np.maximum(rollout, np.add(inference, training)) + problem.overhead_s  # type: ignore[no-any-return]
    return np.add(np.add(rollout, inference), training) + problem.overhead_s  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Work:
    """What a task must do in a phase whatever its layout: FLOPs, then FLOPs or bytes of device memory, whichever take longer."""

    task: str
    phase: int
    factor_of: str
    flops: float
    decode_flops: float = 0.0
    decode_bytes: float = 0.0


def works_of(problem: Problem, task: Task) -> list[Work]:
    """A task's work in one iteration. The actor also computes the old log-probabilities, in the inference phase."""
    work, model = problem.work, task.model
    if task.name == "rollout":
        tokens, kv = work.sequences * work.response_mean, model.layers * model.kv_bytes_per_token_layer(problem.element_bytes)
        prompts = model.layer_matmul_flops(work.sequences * work.prompt_mean) + work.sequences * model.layer_attention_flops(
            work.prompt_mean
        )
        weights = (model.layers * model.layer_params() + model.embedding_params()) * problem.element_bytes
        decode = tokens * (model.layers * model.layer_matmul_flops(1) + model.head_flops(1))
        read = work.response_mean * weights + tokens * work.prompt_mean * kv
        return [Work("rollout", 0, "rollout", model.layers * prompts, decode, read)]
    layers = model.layers * layer_forward_flops(model, sequences=work.sequences, tokens_each=work.sequence_tokens, tp=1)
    head = head_forward_flops(model, sequences=work.sequences, tokens_each=work.sequence_tokens, tp=1, value_head=task.value_head)
    if not task.training:
        return [Work(task.name, 1, task.name, layers + head)]
    found = [Work(task.name, 2, task.name, work.epochs * (training_multiplier(problem.job.engine.recompute) * layers + 3 * head))]
    if task.name == "actor_training":
        found.append(Work(task.name, 1, ACTOR_LOG_PROB, layers + head))
    return found


class Floors:
    """Least seconds of sets of tasks on vectors of devices."""

    def __init__(self, problem: Problem, cells: Cells) -> None:
        self._counts = np.array(cells.counts)
        self._works = [w for t in problem.tasks for w in works_of(problem, t)]
        firsts = [m[0] for m in cells.members]
        best = np.array([c.best for c in problem.fleet.curves])[problem.fleet.device_class][firsts]
        factors = {w.factor_of: problem.factors(w.factor_of)[firsts] for w in self._works}
        self._speed: dict[str, Floats] = {name: best / f for name, f in factors.items()}
        self._memory: dict[str, Floats] = {name: problem.fleet.hbm_bytes_per_s[firsts] / f for name, f in factors.items()}

    def phases(self, tasks: tuple[str, ...], vector: Vector) -> list[float]:
        """Seconds of each phase if ``tasks`` run on the vector and all others together on what is left."""
        found = [0.0] * PHASES
        inside, outside = np.array(vector), self._counts - np.array(vector)
        for phase in range(PHASES):
            for mine, devices in (
                ([w for w in self._works if w.phase == phase and w.task in tasks], inside),
                ([w for w in self._works if w.phase == phase and w.task not in tasks], outside),
            ):
                if mine:
                    found[phase] = max(found[phase], self._seconds(mine, devices))
        return found

    def _seconds(self, works: list[Work], devices: NDArray[np.int64]) -> float:
        speed = float(np.max([self._speed[w.factor_of] for w in works], axis=0) @ devices)
        if speed <= 0:
            return float("inf")
        decode = max(sum(w.decode_flops for w in works) / speed, sum(w.decode_bytes for w in works) / self._read(works, devices))
        return sum(w.flops for w in works) / speed + decode

    def _read(self, works: list[Work], devices: NDArray[np.int64]) -> float:
        return float(np.max([self._memory[w.factor_of] for w in works], axis=0) @ devices)
