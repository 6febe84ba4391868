"""From what was played to lines of the throughput log."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from artifacts.throughput import Iteration, Replica
from stages.train.engines.simulator.graph import Played
from stages.train.engines.simulator.iteration import Iterations
from stages.train.engines.simulator.setting import Setting
from stages.train.engines.simulator.workload import Batch


def lines(setting: Setting, made: Iterations, played: Played, *, skip: int = 0) -> list[Iteration]:
    """A line for every iteration but the first ``skip``. ``step`` counts from the job's first iteration."""
    spans: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [float("inf"), 0.0]))
    replicas: dict[int, dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(lambda: [float("inf"), 0.0]))
    for label, start, end in zip(made.graph.labels, played.start.tolist(), played.end.tolist(), strict=True):
        _widen(spans[label.batch][label.task], start, end)
        if label.replica >= 0:
            _widen(replicas[label.batch][label.task, label.replica], start, end)
    found, before = [], 0.0
    for number, (b, activity) in enumerate(sorted(made.ends.items())):
        at = float(played.end[activity])
        if number >= skip:
            tasks = {name: end - start for name, (start, end) in spans[b].items() if name != "iteration"}
            found.append(_line(setting, b, made.batches[b], at - before, tasks, replicas[b]))
        before = at
    return found


def _widen(span: list[float], start: float, end: float) -> None:
    span[0], span[1] = min(span[0], start), max(span[1], end)


def _line(
    setting: Setting, b: int, batch: Batch, time_s: float, tasks: dict[str, float], replicas: dict[tuple[str, int], list[float]]
) -> Iteration:
    job = setting.job
    return Iteration(
        step=b + 1,
        time_s=time_s,
        by_task_s=tasks,
        sequences=job.batch.sequences,
        tokens=batch.tokens,
        staleness=float(min(b, job.staleness)) if job.mode == "async" else None,
        response_tokens_mean=float(batch.response.mean()),
        replicas={name: _replicas(setting, name, batch, replicas) for name in setting.tasks},
    )


def _replicas(setting: Setting, name: str, batch: Batch, spans: dict[tuple[str, int], list[float]]) -> list[Replica]:
    """Sequences and tokens by share; seconds from a replica's first activity to its last."""
    each = batch.prompt + batch.response if name == "rollout" else batch.computed
    shares = setting.tasks[name].strategy.local_batch_sequences
    hands = np.split(each, np.cumsum(shares)[:-1])
    found = []
    for i, (share, mine) in enumerate(zip(shares, hands, strict=True)):
        start, end = spans.get((name, i), [0.0, 0.0])
        found.append(Replica(sequences=share, tokens=int(mine.sum()), time_s=end - start))
    return found
