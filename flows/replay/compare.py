"""From cells to the paper's quantities: ratios of throughput, and where the slower plan loses its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from artifacts.views.text import task_title
from flows.replay.cells import Cell, Workload
from flows.replay.experiments import BASELINES, Replay
from flows.replay.fleets import SETTINGS
from flows.replay.published import END_TO_END, Range
from flows.replay.results import Result

Found = Mapping[Cell, Result]


@dataclass(frozen=True)
class Ratio:
    """HetRL against a baseline in one cell. ``value`` None: the baseline (or HetRL) has no plan that fits."""

    setting: str
    workload: Workload
    baseline: str
    ours: Result
    theirs: Result
    published: Range | None

    @property
    def value(self) -> float | None:
        return speedup(self.ours, self.theirs)


def speedup(ours: Result, theirs: Result) -> float | None:
    """Throughput over throughput, simulated; both have the same batch."""
    if ours.simulated_s is None or theirs.simulated_s is None:
        return None
    return theirs.simulated_s / ours.simulated_s


def end_to_end(replay: Replay, found: Found) -> list[Ratio]:
    """Every comparison whose cells are there, setting by setting."""
    ratios = []
    for setting in SETTINGS:
        for workload in replay.workloads:
            ours = found.get(replay.cell(setting, workload))
            for baseline in BASELINES[workload.mode]:
                theirs = found.get(replay.cell(setting, workload, baseline))
                if ours and theirs:
                    ratios.append(Ratio(setting, workload, baseline, ours, theirs, END_TO_END.get((setting, workload.mode, baseline))))
    return ratios


def lost_in(ours: Result, theirs: Result) -> str:
    """The task in which the slower of two plans loses most, and the term that is most of it there: ``actor training +520 s, dp``."""
    if ours.simulated_s is None or theirs.simulated_s is None:
        return (theirs if theirs.simulated_s is None else ours).why
    tasks = ours.by_task.keys() | theirs.by_task.keys()
    apart = {task: theirs.by_task.get(task, 0.0) - ours.by_task.get(task, 0.0) for task in tasks}
    if theirs.simulated_s < ours.simulated_s:
        task = min(apart, key=lambda t: apart[t])
        slower = ours
    else:
        task, slower = max(apart, key=lambda t: apart[t]), theirs
    terms = slower.terms.get("actor_training" if task == "actor_log_prob" else task, {})
    most = max(terms, key=lambda t: terms[t]) if terms else ""
    return f"{task_title(task)} {apart[task]:+,.0f} s".replace("-", "−") + (f", mostly {most}" if most else "")


def at_cpu(result: Result, seconds: float) -> float | None:
    """Best predicted seconds after so much processor time, at the search's mean pace; None: nothing fitted yet."""
    if not result.evaluations or not result.cpu_s:
        return None
    reached = seconds / result.cpu_s * result.evaluations
    best = [cost for evaluations, cost in result.trajectory if evaluations <= reached]
    return best[-1] if best else None
