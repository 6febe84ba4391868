"""The baseline that anything must beat: uniform choices at every level."""

from __future__ import annotations

import random

from stages.schedule.draft import Draft
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.search.space import cuts, draft_group, groupings, mask_of, rollout_tps


def random_search(evaluator: Evaluator, *, seed: int) -> SearchReport:
    """Draw plans until the budget is spent; the evaluator holds the best."""
    rng = random.Random(seed)
    misses = 0
    while evaluator.left() > 0 and misses < 10_000:
        draft = draw(evaluator, rng)
        if draft is None:
            misses += 1
            continue
        evaluator.plan(draft)
    return SearchReport(arms=[], operators={})


def draw(evaluator: Evaluator, rng: random.Random) -> Draft | None:
    """One plan: a grouping, a group (or idleness) for every device, a cut for every group; None where a group got none."""
    problem = evaluator.problem
    options = groupings(problem)
    if not options:
        return None
    grouping = rng.choice(options)
    masks = [mask_of(problem, g) for g in grouping]
    members: list[list[int]] = [[] for _ in grouping]
    idle_too = rng.random() < 0.25
    for device in rng.sample(range(problem.fleet.size), problem.fleet.size):
        able = [g for g in range(len(grouping)) if masks[g][device]]
        if able and not (idle_too and rng.random() < 0.25):
            members[rng.choice(able)].append(device)
    drafts = []
    for tasks, devices in zip(grouping, members, strict=True):
        if not devices:
            return None
        tps = rollout_tps(problem, len(devices)) if "rollout" in tasks else [0]
        choices = cuts(problem, tasks, tuple(devices), thorough=True) if any(t != "rollout" for t in tasks) else (None,)
        if not choices or not tps:
            return None
        drafts.append(draft_group(problem, tasks, tuple(devices), rng.choice(choices), rng.choice(tps)))
    return Draft(groups=tuple(drafts))
