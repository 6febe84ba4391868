"""What the throughput log says about time: medians and spreads over the iterations that count."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from artifacts.errors import InputError
from artifacts.throughput import Iteration, Throughput

DISPATCH = "dispatch"
"""What tasks take beyond their slowest replica: the driver hands batches out and gathers them. It depends on the batch, not on the plan."""


@dataclass(frozen=True)
class Sample:
    """One quantity over iterations: median in seconds, relative interquartile range, how many iterations had it."""

    median_s: float
    spread: float
    count: int


@dataclass(frozen=True)
class Measured:
    """``tasks`` has every key of ``by_task_s``, and :data:`DISPATCH`; ``iterations`` are those that count; ``warm_up`` says how many were
    left out. A task whose replicas are in the log is what its slowest one took, which is what the cost model is about."""

    whole: Sample
    tasks: dict[str, Sample]
    iterations: tuple[Iteration, ...]
    warm_up: int

    def beside(self, predicted: Collection[str]) -> Sample | None:
        """Seconds an iteration spends under keys that are not in ``predicted``, summed within each iteration; None: no such key."""
        unknown = self.tasks.keys() - set(predicted)
        return sample([sum(s for k, s in spent(i).items() if k in unknown) for i in self.iterations]) if unknown else None


def measure(throughput: Throughput, *, skip: int, where: str) -> Measured:
    """Summarise a log without its first ``skip`` iterations, nor those of an interrupted run that it went on from: they may have had
    another plan. A log that is no longer than that counts its last iteration.

    Raises:
        InputError: no iteration finished.
    """
    if not throughput.iterations:
        raise InputError(
            f"{where} has no finished iteration: there is nothing to compare", fix="look at the train stage's log and rerun it"
        )
    counted = throughput.iterations[throughput.header.resumed_step + skip :] or throughput.iterations[-1:]
    times = [spent(i) for i in counted]
    keys = dict.fromkeys(k for t in times for k in t)
    return Measured(
        whole=sample([i.time_s for i in counted]),
        tasks={k: sample([t[k] for t in times if k in t]) for k in keys},
        iterations=tuple(counted),
        warm_up=len(throughput.iterations) - len(counted),
    )


def spent(iteration: Iteration) -> dict[str, float]:
    """Seconds by task; the sum is that of ``by_task_s``."""
    own = {
        task: min(seconds, max(r.time_s for r in iteration.replicas[task])) if iteration.replicas.get(task) else seconds
        for task, seconds in iteration.by_task_s.items()
    }
    beyond = sum(iteration.by_task_s.values()) - sum(own.values())
    return own | {DISPATCH: beyond} if beyond > 0 else own


def sample(values: Sequence[float]) -> Sample:
    """Median and interquartile range (quartiles by linear interpolation), the latter relative to the median."""
    low, mid, high = (float(q) for q in np.percentile(values, [25, 50, 75]))
    return Sample(median_s=mid, spread=(high - low) / mid if mid > 0 else 0.0, count=len(values))
