"""Random feasible plans for comparing what prices them: any grouping, any sizes, devices by place or anyhow, any cut."""

from __future__ import annotations

import random
from collections.abc import Iterator

from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from stages.profile.basis import anchored
from stages.profile.inventory import read_inventory
from stages.profile.scenarios import scenario_text
from stages.schedule.cost.iteration import compose, price_group
from stages.schedule.documents import plan_document
from stages.schedule.draft import GroupDraft
from stages.schedule.problem import Problem, build_problem
from stages.schedule.search.space import cuts, draft_group, groupings, mask_of, rollout_tps


def scenario_topology(name: str) -> Topology:
    """A published network setting as the profile stage reads it."""
    return anchored(read_inventory(scenario_text(name), where=name), [])


def random_plans(job: Job, topology: Topology, *, seed: int) -> Iterator[tuple[Problem, Plan]]:
    """Plans that fit, without end; those that do not are drawn and rejected."""
    problem = build_problem(job, topology)
    rng = random.Random(seed)
    while True:
        drafts = _draw(problem, rng)
        prices = [price_group(problem, g) for g in drafts]
        made = [p for p in prices if p is not None]
        if not drafts or len(made) < len(drafts):
            continue
        price = compose(problem, made)
        if price.feasible:
            yield problem, plan_document(problem, price, solver="random", idle={}, reasons={})


def _draw(problem: Problem, rng: random.Random) -> list[GroupDraft]:
    grouping = rng.choice(groupings(problem))
    devices = list(range(problem.fleet.size))
    if rng.random() < 0.5:
        rng.shuffle(devices)
    used = rng.randint(len(devices) // 2, len(devices))
    marks = sorted(rng.sample(range(1, used), len(grouping) - 1))
    groups = []
    for tasks, start, end in zip(grouping, [0, *marks], [*marks, used], strict=True):
        mine = tuple(d for d in devices[start:end] if mask_of(problem, tasks)[d])
        tps = rollout_tps(problem, len(mine)) if "rollout" in tasks else [0]
        choices = (None,) if tasks == ("rollout",) else cuts(problem, tasks, mine, thorough=True) if mine else ()
        if not choices or not tps:
            return []
        groups.append(draft_group(problem, tasks, mine, rng.choice(choices), rng.choice(tps)))
    return groups
