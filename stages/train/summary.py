"""A few figures of a run. The first iteration is left out of medians: it warms up what the others use."""

from __future__ import annotations

from statistics import median
from typing import Any

from artifacts.throughput import Iteration, Throughput


def summarize(log: Throughput) -> dict[str, Any]:
    iterations = log.iterations
    if not iterations:
        return {"iterations": 0}
    steady = iterations[1:] or iterations
    tasks = sorted({task for i in steady for task in i.by_task_s})
    return {
        "iteration_time_s": median(i.time_s for i in steady),
        "throughput_samples_per_s": median(i.samples_per_s for i in steady),
        "by_task": {task: median(i.by_task_s.get(task, 0.0) for i in steady) for task in tasks},
        "reward_first": iterations[0].reward_mean,
        "reward_last": iterations[-1].reward_mean,
        "iterations": len(iterations),
    }


def line(iteration: Iteration, total: int) -> str:
    """One iteration for the terminal."""
    parts = [f"iteration {iteration.step}/{total}", f"{iteration.time_s:.2f} s"]
    for label, value in (("reward", iteration.reward_mean), ("loss", iteration.loss), ("grad norm", iteration.grad_norm)):
        if value is not None:
            parts.append(f"{label} {value:.4g}")
    return ", ".join(parts)


def values(iteration: Iteration) -> dict[str, float]:
    """Figures worth plotting."""
    found = {"seconds": iteration.time_s, "reward": iteration.reward_mean, "loss": iteration.loss, "grad_norm": iteration.grad_norm,
             "kl": iteration.kl, "samples_per_s": iteration.samples_per_s}
    return {name: value for name, value in found.items() if value is not None}
