"""The published local search: devices of two groups change places while that brings devices of a group nearer to each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.draft import Draft
from stages.schedule.problem import Problem
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.space import mask_of

SAME_MACHINE, SAME_REGION = 2.0, 1.0
"""What a pair of devices of one group adds to the score."""
MOST_SWAPS = 64

Floats = NDArray[np.float64]


def near_first(evaluator: Evaluator, draft: Draft) -> PlanPrice | None:
    """Price what the local search makes of a plan. An exchange of devices of unequal memory may make it worse: that is the method."""
    return evaluator.plan(localised(evaluator.problem, draft))


def closeness(problem: Problem) -> Floats:
    """Score of every pair of devices, ``[D, D]``; memoised with the problem."""
    found = problem.compiled.get("closeness")
    if found is None:
        fleet = problem.fleet
        same = [x[:, None] == x[None, :] for x in (fleet.machine, fleet.region)]
        found = problem.compiled["closeness"] = same[0] * SAME_MACHINE + same[1] * SAME_REGION
    assert isinstance(found, np.ndarray)
    return found


def localised(problem: Problem, draft: Draft) -> Draft:
    """The plan after exchanges between groups, each the one that raises the score most, until none does."""
    if len(draft.groups) < 2:
        return draft
    pairs = closeness(problem)
    order = [list(g.devices) for g in draft.groups]
    flat = np.array([d for mine in order for d in mine])
    group = np.repeat(np.arange(len(order)), [len(mine) for mine in order])
    masks = np.stack([mask_of(problem, g.tasks) for g in draft.groups])
    apart = group[:, None] != group[None, :]
    for _ in range(MOST_SWAPS):
        legal = masks[group][:, flat]  # [i, j]: the device at place j may go to the group of place i
        near = pairs[np.ix_(flat, flat)]
        inside = np.stack([near[:, group == g].sum(axis=1) for g in range(len(order))], axis=1)
        here, there = inside[np.arange(len(flat)), group] - near.diagonal(), inside[:, group]
        gain = np.where(apart & legal & legal.T, there + there.T - here[:, None] - here[None, :] - 2 * near, 0.0)
        at = int(np.argmax(gain))
        if gain.flat[at] <= 1e-9:
            break
        i, j = divmod(at, len(flat))
        flat[i], flat[j] = flat[j], flat[i]
    ends = np.cumsum([len(mine) for mine in order])
    parts = np.split(flat, ends[:-1])
    return Draft(groups=tuple(replace(g, devices=tuple(p.tolist())) for g, p in zip(draft.groups, parts, strict=True)))
