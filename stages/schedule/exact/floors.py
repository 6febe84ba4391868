"""What no layout can beat: the time of tasks on some devices if nothing were communicated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.compute import head_forward_flops, layer_forward_flops, training_multiplier
from stages.schedule.exact.cells import Cells, Vector
from stages.schedule.problem import Problem, Task

Floats = NDArray[np.float64]
PHASES = 3


def phase_of(task: str) -> int:
    """0 rollout, 1 inference, 2 training."""
    return 0 if task == "rollout" else 2 if task.endswith("_training") else 1


def combine(problem: Problem, phases: Sequence[Floats] | Sequence[float]) -> Floats:
    """Seconds of an iteration from those of its phases, without the weight update."""
    rollout, inference, training = phases
    overhead = problem.calibration.overhead_s if problem.calibration else 0.0
    if problem.job.mode == "async":
        return np.maximum(rollout, np.add(inference, training)) + overhead  # type: ignore[no-any-return]
    return np.add(np.add(rollout, inference), training) + overhead  # type: ignore[no-any-return]


def flops_of(problem: Problem, task: Task) -> float:
    """FLOPs of a task in one iteration, in any layout: its tokens through its layers and its head; in decoding without attention."""
    work, model = problem.work, task.model
    if task.name == "rollout":
        return work.sequences * work.response_mean * (model.layers * model.layer_matmul_flops(1) + model.head_flops(1))
    layers = model.layers * layer_forward_flops(model, sequences=work.sequences, tokens_each=work.sequence_tokens, tp=1)
    head = head_forward_flops(model, sequences=work.sequences, tokens_each=work.sequence_tokens, tp=1, value_head=task.value_head)
    return work.epochs * (training_multiplier(problem.job.engine.recompute) * layers + 3 * head) if task.training else layers + head


class Floors:
    """Least seconds of sets of tasks on vectors of devices."""

    def __init__(self, problem: Problem, cells: Cells) -> None:
        self._counts = np.array(cells.counts)
        firsts = [m[0] for m in cells.members]
        best = np.array([c.best for c in problem.fleet.curves])[problem.fleet.device_class][firsts]
        self._rates: dict[str, Floats] = {t.name: best / problem.factors(t.name)[firsts] for t in problem.tasks}
        self._flops: dict[str, float] = {t.name: flops_of(problem, t) for t in problem.tasks}

    def phases(self, tasks: tuple[str, ...], vector: Vector) -> list[float]:
        """Seconds of each phase if ``tasks`` run on the vector and all others together on what is left."""
        found = [0.0] * PHASES
        rest = tuple(t for t in self._flops if t not in tasks)
        for named, devices in ((tasks, np.array(vector)), (rest, self._counts - np.array(vector))):
            for phase in range(PHASES):
                mine = [t for t in named if phase_of(t) == phase]
                if mine:
                    speed = float(np.max([self._rates[t] for t in mine], axis=0) @ devices)
                    seconds = sum(self._flops[t] for t in mine) / speed if speed > 0 else float("inf")
                    found[phase] = max(found[phase], seconds)
        return found
