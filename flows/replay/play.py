"""One cell through the stages: profile (once a fleet), schedule, and train on the simulator."""

from __future__ import annotations

import threading
from functools import cached_property

from artifacts.errors import InfeasiblePlan
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.topology import Topology
from artifacts.views.text import tally, task_title
from flows.alone import run_alone
from flows.launch import StageRunner
from flows.replay.cells import Cell
from flows.replay.fleets import profile_parameters
from flows.replay.results import Result


class Player:
    """Plays cells, several threads at a time if need be; remembers fleets, and which runs to end when it is stopped."""

    def __init__(self, runner: StageRunner) -> None:
        self._runner = runner
        self._fleets: dict[str, Topology] = {}
        self._running: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._stopped = False

    @cached_property
    def _code(self) -> dict[str, str]:
        return {stage: self._runner.code_digest(stage) for stage in ("profile", "schedule", "train")}

    def key(self, cell: Cell) -> str:
        used = ("profile", "schedule", "train") if cell.played else ("profile", "schedule")
        return cell.key(profile_parameters(cell.fleet), {stage: self._code[stage] for stage in used})

    def play(self, cell: Cell) -> Result:
        """Raises what a stage raises, except that a cell without a plan is a result."""
        job, topology = cell.workload.job(), self._topology(cell.fleet)
        found = Result(key=self.key(cell), cell=str(cell))
        try:
            with run_alone("schedule", {"job": job, "topology": topology}, cell.schedule_parameters(), runner=self._runner,
                           on_event=lambda event: None, on_start=self._started) as made:
                plan, prediction, search = made.read(Plan), made.read(Prediction), made.read(Search)
        except InfeasiblePlan as error:
            return found.model_copy(update={"why": error.message})
        found = found.model_copy(update={
            "predicted_s": prediction.iteration_time_s,
            "terms": {task: times.terms for task, times in prediction.tasks.items()} | {"other": prediction.other_s},
            "plan": _words(plan, topology),
            "idle": len(plan.idle_devices),
            "solver_status": search.status,
            "proof_scope": search.proof_scope,
            "evaluations": search.evaluations,
            "cpu_s": search.cpu_seconds,
            "trajectory": [(point.evaluations, point.cost_s) for point in search.trajectory],
        })
        if not cell.played:
            return found
        try:
            with run_alone("train", {"job": job, "topology": topology, "plan": plan}, {"simulate_only": True}, runner=self._runner,
                           on_event=lambda event: None, on_start=self._started) as made:
                return found.model_copy(update={"simulated_s": made.summary["iteration_time_s"], "by_task": made.summary["by_task"]})
        except InfeasiblePlan as error:
            return found.model_copy(update={"why": error.message})

    def stop(self) -> None:
        """End every stage that runs; nothing more is started."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for run_id in running:
            self._runner.stop_run(run_id)

    def _started(self, run_id: str) -> None:
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            self._running.add(run_id)

    def _topology(self, fleet: str) -> Topology:
        with self._lock:
            lock = self._locks.setdefault(fleet, threading.Lock())
        with lock:
            if fleet not in self._fleets:
                with run_alone("profile", {}, profile_parameters(fleet), runner=self._runner, on_event=lambda event: None,
                               on_start=self._started) as made:
                    self._fleets[fleet] = made.read(Topology)
            return self._fleets[fleet]


def _words(plan: Plan, topology: Topology) -> list[str]:
    """``rollout, actor training: 24 × HetRL-A100; rollout 24×1×1, actor training 3×8×1``."""
    kind = {d.id: d.device_class for d in topology.devices}
    lines = []
    for group in plan.groups:
        degrees = dict.fromkeys(f"{task_title(t)} {s.dp}×{s.pp}×{s.tp}" for t in group.tasks for s in (plan.tasks[t],))
        lines.append(f"{tally(kind[d] for d in group.devices)}: {', '.join(degrees)}")
    return lines
