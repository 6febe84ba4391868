"""The same problem under other rules or on fewer devices: what a baseline sees, what a cheaper fleet would do."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.schedule.problem import Problem


def variant(problem: Problem, **changes: Any) -> Problem:
    """The problem with some of its fields changed; what it had memoised is forgotten, because it may no longer hold."""
    memos = {f.name: f.default_factory() for f in fields(problem) if f.default_factory is not MISSING and f.name not in changes}
    return replace(problem, **memos, **changes)


def without(problem: Problem, left_out: NDArray[np.bool_], reason: str) -> Problem:
    """The problem without some devices, ``left_out`` is ``[D]``; the topology stays as it is, so that a plan keeps its fingerprint."""
    gone = {problem.fleet.devices[int(d)].id: reason for d in np.flatnonzero(left_out)}
    return variant(
        problem,
        allowed={task: mask & ~left_out for task, mask in problem.allowed.items()},
        excluded={**gone, **problem.excluded},
    )


def without_limit(problem: Problem) -> Problem:
    """The problem for a user who allows any number of devices."""
    constraints = problem.job.constraints.model_copy(update={"max_devices": None})
    return variant(problem, job=problem.job.model_copy(update={"constraints": constraints}))


def evenly(problem: Problem) -> Problem:
    """The problem for an engine that knows one share: equal layers on every stage, equal batches on every replica."""
    return variant(problem, engine=problem.engine.model_copy(update={"uneven_layers": False, "uneven_batches": False}))
