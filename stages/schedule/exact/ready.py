"""What the exact solvers run on, compiled (or loaded) before their clock starts."""

from __future__ import annotations

from stages.schedule.draft import Cut
from stages.schedule.exact.sweep import sweep
from stages.schedule.problem import Problem
from stages.schedule.search.auto.solver import ready


def ready_to_prove(problem: Problem) -> None:
    """All of ``auto`` (the first plan is its), and the sweep over layouts: one device, one cut."""
    ready(problem)
    tasks = tuple(t.name for t in problem.tasks)
    sweep(problem, tasks, [(0,)], [(Cut(dp=1, pp=1, tp=1, micro=1), 1)], [True], least=(0.0, 0.0, 0.0), cutoff_s=1.0)
