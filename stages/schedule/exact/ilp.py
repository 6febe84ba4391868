"""The integer programme: which groups make the fastest plan. PuLP models it, HiGHS solves it (CBC where HiGHS is not installed).

A binary for every column (a group of tasks on a vector of device counts with its layouts: a strategy of each task, and how many tasklets
on each class of devices). Every task is in exactly one chosen column, no class of devices is used more often than it has devices, no
machine's memory is overrun. Continuous variables hold the phases: a phase lasts as long as the busiest group in it, groups being exclusive
resources of their tasks, so the makespan is rollout + inference + training (synchronous) or the longer of rollout and the rest
(asynchronous), plus the weight update.

The weight update depends on two columns where rollout has a group of its own. It starts as a lower bound, and gets exact row by row:
whenever a solution undercharges it, rows for the rollout column it chose are added and the programme is solved again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pulp

from stages.schedule.exact.cells import Cells, Vector
from stages.schedule.exact.column import Column
from stages.schedule.exact.outcome import TOLERANCE, Outcome, Updates, host_limits
from stages.schedule.problem import Problem

POLL_S = 0.2


def solve_programme(
    problem: Problem,
    columns: Sequence[Column],
    cells: Cells,
    *,
    cutoff_s: float,
    seconds: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Outcome:
    """The best choice of columns with an objective up to ``cutoff_s``.

    ``seconds`` bounds the time (None: none); ``check`` is called about five times a second and may raise to end it.
    """
    if any(not any(t.name in c.draft.tasks for c in columns) for t in problem.tasks):
        return Outcome(None, float("inf"), cutoff_s, True, 0)
    programme = Programme(problem, columns, cells, cutoff_s)
    deadline = None if seconds is None else time.monotonic() + seconds
    bound, rounds = 0.0, 0
    chosen, objective = None, float("inf")
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return Outcome(chosen, objective, bound, False, rounds)
        solved = programme.solve(left, check)
        rounds, bound = rounds + 1, max(bound, solved.bound_s)
        if solved.chosen is None:
            return Outcome(chosen, objective, min(cutoff_s, objective) if solved.finished else bound, solved.finished, rounds)
        actual = programme.updates.iteration(solved.chosen)
        if actual < min(objective, cutoff_s * (1 + TOLERANCE)):
            chosen, objective = solved.chosen, actual
        if not programme.charge(solved.chosen):
            return Outcome(chosen, objective, min(objective, actual) if solved.finished else bound, solved.finished, rounds)


@dataclass(frozen=True, eq=False)
class Solved:
    """One run of the solver: its choice, its dual bound, whether it came to its end."""

    chosen: list[Column] | None
    bound_s: float
    finished: bool


class Programme:
    """The model, in units of the cut-off so that the solver's absolute tolerances are relative ones."""

    def __init__(self, problem: Problem, columns: Sequence[Column], cells: Cells, cutoff_s: float) -> None:
        self._problem, self._columns, self._unit = problem, columns, cutoff_s
        self._overhead = problem.overhead_s
        self._charged: set[int] = set()
        self.updates = Updates(problem, cells)
        self._actors = [i for i, c in enumerate(columns) if "actor_training" in c.draft.tasks]
        self._model = pulp.LpProblem("plan", pulp.LpMinimize)
        self._take = [self._model.add_variable(f"x{i}", cat="Binary") for i in range(len(columns))]
        self._update = self._model.add_variable("update", lowBound=0)
        self._objective_and_phases()
        self._devices(cells.counts)
        self._host_memory()
        both = [i for i in self._actors if "rollout" in columns[i].draft.tasks]
        self._model += self._update >= pulp.lpSum(columns[i].update_s / self._unit * self._take[i] for i in both)

    def _objective_and_phases(self) -> None:
        rollout, inference, training, makespan = (
            self._model.add_variable(name, lowBound=0) for name in ("rollout", "inference", "training", "makespan")
        )
        model = self._model
        model += makespan + self._update
        model += makespan + self._update <= 1.0 + TOLERANCE - self._overhead / self._unit
        if self._problem.job.mode == "async":
            model += makespan >= rollout
            model += makespan >= inference + training
        else:
            model += makespan >= rollout + inference + training
        for task in self._problem.tasks:
            mine = [(x, c) for x, c in zip(self._take, self._columns, strict=True) if task.name in c.draft.tasks]
            model += pulp.lpSum(x for x, _ in mine) == 1
            for phase, at in ((rollout, 0), (inference, 1), (training, 2)):
                model += phase >= pulp.lpSum(c.seconds[at] / self._unit * x for x, c in mine if c.seconds[at])

    def _devices(self, counts: Vector) -> None:
        for cell, have in enumerate(counts):
            used = pulp.lpSum(c.vector[cell] * x for x, c in zip(self._take, self._columns, strict=True) if c.vector[cell])
            self._model += used <= have
        most = self._problem.most_devices
        if most < sum(counts):
            self._model += pulp.lpSum(sum(c.vector) * x for x, c in zip(self._take, self._columns, strict=True)) <= most

    def _host_memory(self) -> None:
        limits = host_limits(self._problem)
        needing = [(x, c.host) for x, c in zip(self._take, self._columns, strict=True) if c.host]
        for m in range(len(limits) if needing else 0):
            self._model += pulp.lpSum(host[m] / limits[m] * x for x, host in needing if host[m]) <= 1

    def charge(self, chosen: Sequence[Column]) -> bool:
        """Add the row that makes the weight update of the chosen rollout column exact; False where it is exact already."""
        at = next(i for i, c in enumerate(self._columns) if "rollout" in c.draft.tasks and any(c is other for other in chosen))
        rollout = self._columns[at]
        if at in self._charged or "actor_training" in rollout.draft.tasks:
            return False
        self._charged.add(at)
        apart = [i for i in self._actors if "rollout" not in self._columns[i].draft.tasks]
        seconds = {i: self.updates.seconds(self._columns[i], rollout) / self._unit for i in apart}
        most = max(seconds.values())
        self._model += self._update >= pulp.lpSum(s * self._take[i] for i, s in seconds.items()) - most * (1 - self._take[at])
        return True

    def solve(self, seconds: float | None, check: Callable[[], None]) -> Solved:
        """One run of the solver, in a thread so that ``check`` can end it."""
        solver, failed = _solver(seconds), []

        def work() -> None:
            try:
                self._model.solve(solver)
            except BaseException as error:
                failed.append(error)  # raised on in the caller's thread

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_S)
                check()
        except BaseException:
            if isinstance(solver, Highs):
                self._model.solverModel.cancelSolve()
            raise
        if failed:
            raise failed[0]
        chosen = [c for c, x in zip(self._columns, self._take, strict=True) if (x.value() or 0) > 0.5]
        covered = sorted(t for c in chosen for t in c.draft.tasks) == sorted(t.name for t in self._problem.tasks)
        proved, dual = _verdict(self._model, solver)
        return Solved(chosen if covered else None, dual * self._unit + self._overhead, proved)


class Highs(pulp.HiGHS):  # type: ignore[misc]
    """HiGHS that can be told to stop."""

    def callSolver(self, lp: pulp.LpProblem) -> None:
        lp.solverModel.HandleUserInterrupt = True
        lp.solverModel.run()


def _solver(seconds: float | None) -> Any:
    highs = Highs(
        msg=False, timeLimit=seconds, gapRel=TOLERANCE, gapAbs=TOLERANCE, log_to_console=False, mip_feasibility_tolerance=TOLERANCE
    )
    return highs if highs.available() else pulp.PULP_CBC_CMD(msg=False, timeLimit=seconds, gapRel=TOLERANCE)


def _verdict(model: pulp.LpProblem, solver: object) -> tuple[bool, float]:
    """Whether the solver came to its end, and its dual bound in the model's unit (0 where it tells none)."""
    if isinstance(solver, Highs):
        import highspy

        ended = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
        dual = float(model.solverModel.getInfo().mip_dual_bound)
        return model.solverModel.getModelStatus() in ended, dual if abs(dual) < 1e20 else 0.0
    ended_cbc = model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionInfeasible)
    return ended_cbc, float(pulp.value(model.objective) or 0.0) if model.sol_status == pulp.LpSolutionOptimal else 0.0
