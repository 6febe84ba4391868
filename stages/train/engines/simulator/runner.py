"""The simulator as an engine of the train stage."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from artifacts.job import Job
from artifacts.throughput import Iteration
from stages.train.engines.base import Report, Result, Run
from stages.train.engines.simulator.graph import Played
from stages.train.engines.simulator.iteration import Iterations, build
from stages.train.engines.simulator.log import lines
from stages.train.engines.simulator.rollout import check_cache
from stages.train.engines.simulator.setting import Setting, setting_of
from stages.train.engines.simulator.trace import chrome_trace

Go = tuple[Iterations, Played, list[Iteration]]
TRACE_FILE = "trace.json"
AT_ONCE = 6
"""Asynchronous iterations played in one go. Each go begins some iterations earlier, so that the pipeline of batches is full again."""


class SimulatorEngine:
    """Plays the plan's events on the topology as described. Trains nothing: there is no loss and no reward in its log."""

    name = "simulator"

    def versions(self) -> dict[str, str]:
        return {"numba": version("numba"), "numpy": version("numpy")}

    def check(self, run: Run) -> None:
        check_cache(setting_of(run.job, run.topology, run.plan))

    def run(self, run: Run, report: Report) -> Result:
        setting = setting_of(run.job, run.topology, run.plan)
        how = "described, not at hand" if run.topology.cluster.kind == "inventory" else "not used"
        report.log(f"cluster {run.topology.cluster.name} is {how}: simulating, nothing is trained")
        go = _synchronous if run.job.mode == "sync" else _asynchronous
        trace = run.workdir / TRACE_FILE
        events = 0
        for made, played, found in go(setting):
            events += played.events
            if found[0].step <= 2:  # the second iteration where there is one: the first may differ (asynchronous: the pipeline fills)
                trace.write_text(chrome_trace(run.topology, made, played), encoding="utf-8")
            for line in found:
                report.iteration(line)
        report.log(f"played {events:,} events")
        return Result(files=(trace,))


def _synchronous(setting: Setting) -> Iterator[Go]:
    """One iteration after the other."""
    for b in range(setting.job.iterations):
        made = build(setting, first=b, count=1)
        played = made.graph.play()
        found = lines(setting, made, played)
        if _all_alike(setting.job):
            yield made, played, _repeated(found, setting.job.iterations)
            return
        yield made, played, found


def _asynchronous(setting: Setting) -> Iterator[Go]:
    job = setting.job
    for b in range(0, job.iterations, AT_ONCE):
        skip = min(b, job.staleness + 1)
        made = build(setting, first=b - skip, count=min(AT_ONCE, job.iterations - b) + skip)
        played = made.graph.play()
        found = lines(setting, made, played, skip=skip)
        if _all_alike(job):
            yield made, played, _repeated(found, job.iterations)
            return
        yield made, played, found


def _all_alike(job: Job) -> bool:
    """Whether every sequence has its maximum length, so that iterations do not differ (asynchronous: once the pipeline is full)."""
    return all(lengths.mean == lengths.max and not lengths.quantiles for lengths in (job.prompt_tokens, job.response_tokens))


def _repeated(found: list[Iteration], count: int) -> list[Iteration]:
    """The last line again for every iteration after those played."""
    return [*found, *(found[-1].model_copy(update={"step": step}) for step in range(len(found) + 1, count + 1))]
