"""Starts for the local search: the best ways to deal whole blocks of devices (machines, or parts or sets of them) to groups of tasks.

Every deal of every grouping is looked at. What a group takes on its blocks is first only bounded (its work at the speed of its devices,
nothing communicated), corrected by how far such bounds were from the truth so far; the groups of the most promising deals are cut and
priced, until the best deals hold nothing but priced groups or the budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from stages.schedule.cost.kernel.arrays import OVERFLOW, Floats, Ints, Tables
from stages.schedule.draft import Draft
from stages.schedule.exact.floors import works_of
from stages.schedule.fleet import UNUSABLE_S
from stages.schedule.problem import Problem
from stages.schedule.search.auto.arrays import BUNDLES, HOLDER, ORDERS, SIZE, Bench, Rules
from stages.schedule.search.auto.kernel_chain import work
from stages.schedule.search.auto.rules import draft_of, leave_idle, masks_of

MOST_DEALS = 150_000
MOST_BLOCKS = 8
WORTH = 1.2
"""Estimated cost of a deal over that of the best one priced above which it is not worth pricing."""
MOST_EACH = 256
"""Deals of a grouping that are priced at most."""


@dataclass(frozen=True, eq=False)
class Deals:
    """All deals of one grouping. ``subsets`` is ``[N, groups]``: the blocks of each group as bits."""

    masks: tuple[int, ...]
    subsets: Ints


def blocks_of(problem: Problem, most: int) -> list[list[int]]:
    """Usable devices in at most ``most`` blocks: machines, halved while few, joined with what is most alike while many."""
    fleet = problem.fleet
    machines: dict[tuple[int, int, int], list[int]] = {}
    for d in np.flatnonzero(problem.usable).tolist():
        machines.setdefault((int(fleet.region[d]), int(fleet.device_class[d]), int(fleet.machine[d])), []).append(d)
    blocks = [machines[key] for key in sorted(machines)]
    while len(blocks) > most:
        at = min(range(len(blocks) - 1), key=lambda i: (_unlike(problem, blocks[i], blocks[i + 1]), len(blocks[i]) + len(blocks[i + 1])))
        blocks[at : at + 2] = [blocks[at] + blocks[at + 1]]
    while len(blocks) <= most // 2 and max(len(b) for b in blocks) > 1:
        blocks = [part for b in blocks for part in (b[: (len(b) + 1) // 2], b[(len(b) + 1) // 2 :]) if part]
    return blocks


def blocks_by_kind(problem: Problem, most: int) -> list[list[int]]:
    """Usable devices in at most ``most`` blocks, of one class each as far as that goes: a region's, joined with the nearest region's."""
    fleet = problem.fleet
    parts: dict[tuple[int, int], list[int]] = {}
    for d in np.flatnonzero(problem.usable).tolist():
        parts.setdefault((int(fleet.device_class[d]), int(fleet.region[d])), []).append(d)
    blocks = [parts[key] for key in sorted(parts)]

    def unlike(a: list[int], b: list[int]) -> tuple[bool, float, int]:
        far = fleet.machine_latency_s[np.ix_(fleet.machine[a], fleet.machine[b])]
        return bool(fleet.device_class[a[0]] != fleet.device_class[b[0]]), float(far.max()), len(a) + len(b)

    while len(blocks) > most:
        i, j = min(combinations(range(len(blocks)), 2), key=lambda pair: unlike(blocks[pair[0]], blocks[pair[1]]))
        blocks[i] = sorted(blocks[i] + blocks.pop(j))
    return blocks


def most_blocks(rules: Rules) -> int:
    """So many that all deals of them can be looked at."""
    parts = len(rules.admits).bit_length() - 1
    return max(2, min(MOST_BLOCKS, int(np.log(MOST_DEALS) / np.log(max(2, parts)))))


def _unlike(problem: Problem, a: list[int], b: list[int]) -> float:
    fleet = problem.fleet
    far = fleet.machine_latency_s[fleet.machine[a[-1]], fleet.machine[b[0]]]
    return float(far + 1e3 * (fleet.region[a[-1]] != fleet.region[b[0]]) + 1.0 * (fleet.device_class[a[-1]] != fleet.device_class[b[0]]))


def deals_of(problem: Problem, blocks: int, alike: Ints) -> list[Deals]:
    """Every way to give each block to one group, none empty; of deals that differ by alike blocks only one."""
    found = []
    for masks in masks_of(problem):
        if len(masks) > blocks:
            continue
        owners = np.array(list(product(range(len(masks)), repeat=blocks)), dtype=np.int8)
        keep = np.ones(len(owners), dtype=bool)
        for x in range(1, blocks):
            if alike[x] == alike[x - 1]:
                keep &= owners[:, x - 1] <= owners[:, x]
        bits = 1 << np.arange(blocks)
        subsets = np.stack([((owners[keep] == g) * bits).sum(axis=1) for g in range(len(masks))], axis=1)
        found.append(Deals(masks, subsets[(subsets > 0).all(axis=1)]))
    return found


class Coarse:
    """The table of groups on sets of blocks: bounds, and prices where they are known."""

    def __init__(self, problem: Problem, tables: Tables, rules: Rules, benches: Sequence[Bench], blocks: list[list[int]]) -> None:
        self.problem, self.tables, self.rules, self.benches, self.blocks = problem, tables, rules, benches, blocks
        kinds = [self._kind(b) for b in self.blocks]
        self.alike = np.array([kinds.index(k) for k in kinds])
        self.twins: dict[tuple[int, ...], list[int]] = {}
        for subset in range(1, 1 << len(self.blocks)):
            self.twins.setdefault(self._content(subset), []).append(subset)
        self.deals = deals_of(problem, len(self.blocks), self.alike)
        count = 1 << len(self.blocks)
        self.spans = self._spans(count)
        self.bound = self._bounds(count)
        self.known = np.zeros((len(rules.admits), count), dtype=bool)
        self.price = self.bound.copy()
        self.short = np.zeros((len(rules.admits), count))
        self.cuts: dict[tuple[int, tuple[int, ...]], Ints] = {}
        self.ratio = np.ones((len(rules.admits), int(self.spans.max()) + 1, 3))

    def _kind(self, block: list[int]) -> tuple[object, ...]:
        """Blocks of one kind are interchangeable."""
        fleet = self.problem.fleet
        at = fleet.machine[block]
        links = [tuple(np.sort(m[at[0]]).tolist()) for m in (fleet.machine_latency_s, fleet.machine_inverse_bandwidth)]
        allowed = tuple(tuple(m[block].tolist()) for m in self.problem.allowed.values())
        return (*links, *allowed, tuple(fleet.device_class[block].tolist()), len(set(at.tolist())), int(fleet.region[block[0]]))

    def _spans(self, count: int) -> Ints:
        regions = [set(self.problem.fleet.region[b].tolist()) for b in self.blocks]
        return np.array([len(set().union(*(regions[x] for x in range(len(self.blocks)) if s >> x & 1))) for s in range(count)])

    def _bounds(self, count: int) -> Floats:
        """[masks, subsets, 3] seconds of rollout, inference and training nothing can beat."""
        problem, fleet = self.problem, self.problem.fleet
        best = np.array([c.best for c in fleet.curves])[fleet.device_class]
        inside = np.array([[s >> x & 1 for x in range(len(self.blocks))] for s in range(count)], dtype=float)
        found = np.zeros((len(self.rules.admits), count, 3))
        owner = self.rules.misc[BUNDLES:]
        for t, task in enumerate(problem.tasks):
            for w in works_of(problem, task):
                factor = problem.factors(w.factor_of)
                rates = [np.array([(rate[b] / factor[b]).sum() for b in self.blocks]) for rate in (best, fleet.hbm_bytes_per_s)]
                speed, read = (np.maximum(inside @ rate, 1e-9) for rate in rates)
                seconds = w.flops / speed + np.maximum(w.decode_flops / speed, w.decode_bytes / read)
                for mask in range(len(found)):
                    if mask >> owner[t] & 1:
                        found[mask, :, w.phase] += seconds
        return found

    def _estimates(self) -> Floats:
        scaled = self.bound * self.ratio[:, self.spans]
        return np.where(self.known[:, :, None], self.price, scaled)

    def costs(self) -> list[Floats]:
        """Estimated cost of every deal, by grouping."""
        estimates, found = self._estimates(), []
        for deals in self.deals:
            phases = np.stack([estimates[m, deals.subsets[:, g]] for g, m in enumerate(deals.masks)])
            rollout, inference, training = phases[:, :, 0].sum(axis=0), phases[:, :, 1].max(axis=0), phases[:, :, 2].max(axis=0)
            short = np.max([self.short[m, deals.subsets[:, g]] for g, m in enumerate(deals.masks)], axis=0)
            alone = np.maximum(rollout, inference + training) if self.problem.job.mode == "async" else rollout + inference + training
            found.append(np.where(short > 0, 2 * UNUSABLE_S * (1 + short) + np.minimum(alone, UNUSABLE_S), alone))
        return found

    def refine(self, pool: Executor, going: Callable[[], bool]) -> None:
        """Price the groups of every grouping's most promising deals while ``going``: first its best, then its best two, four …

        As many are priced side by side as there are benches.
        """
        each = 1
        while going() and each <= MOST_EACH:
            missing: dict[tuple[int, int], None] = {}
            done = self._best(1, known=True)
            worst = WORTH * min((cost for cost, _, _ in done), default=float("inf"))
            for cost, where, at in self._best(each, known=False):
                if cost > worst:
                    continue
                deals = self.deals[where]
                missing.update(
                    dict.fromkeys((m, int(s)) for m, s in zip(deals.masks, deals.subsets[at], strict=True) if not self.known[m, s])
                )
            each *= 1 if missing else 2
            fresh = list({(mask, self._content(subset)): (mask, subset) for mask, subset in missing}.values())
            for first in range(0, len(fresh), len(self.benches)):
                now = fresh[first : first + len(self.benches)]
                for group, (phases, short, cut) in zip(now, pool.map(self._price, self.benches, *zip(*now, strict=True)), strict=True):
                    self._learn(*group, phases, short, cut)
                if not going():
                    return

    def _best(self, each: int, *, known: bool) -> list[tuple[float, int, int]]:
        """(cost, grouping, deal) of the ``each`` cheapest of every grouping, those of one rank together; ``known``: all groups priced."""
        found: list[list[tuple[float, int, int]]] = [[] for _ in range(each)]
        for where, cost in enumerate(self.costs()):
            deals = self.deals[where]
            if known:
                unknown = np.any([~self.known[m, deals.subsets[:, g]] for g, m in enumerate(deals.masks)], axis=0)
                cost = np.where(unknown, np.inf, cost)
            for rank, at in enumerate(np.argsort(cost, kind="stable")[:each]):
                if cost[at] < np.inf:
                    found[rank].append((float(cost[at]), where, int(at)))
        return [deal for rank in found for deal in sorted(rank)]

    def _load(self, bench: Bench, mask: int, subset: int) -> None:
        """A set of blocks as the devices of a bench's group 0."""
        devices = [d for x, b in enumerate(self.blocks) if subset >> x & 1 for d in b]
        order = self.rules.devices[ORDERS + (self.spans[subset] == 1)]
        inside = np.isin(order, devices) & self.rules.admits[mask][order]
        mine = order[inside]
        bench.state.meta[0, :HOLDER] = 0
        bench.state.meta[0, SIZE] = len(mine)
        bench.state.order[0, : len(mine)] = mine

    def _price(self, bench: Bench, mask: int, subset: int) -> tuple[Floats, float, Ints]:
        """Seconds of the phases of the best cut, what it lacks of memory (10: it cannot be cut), and the cut."""
        self._load(bench, mask, subset)
        work(self.tables, self.rules, bench, mask, 0)
        phases = bench.ledger.groups[0, :3].copy()
        short = float(bench.ledger.groups[0, OVERFLOW]) if phases.any() and bench.state.meta[0, SIZE] else 10.0
        return phases, short, bench.state.meta[0, :HOLDER].copy()

    def _learn(self, mask: int, subset: int, phases: Floats, short: float, cut: Ints) -> None:
        self.cuts[mask, self._content(subset)] = cut
        for twin in self.twins[self._content(subset)]:
            self.known[mask, twin], self.price[mask, twin], self.short[mask, twin] = True, phases, short
        if short <= 0:
            spans = self.spans[subset]
            with np.errstate(divide="ignore", invalid="ignore"):
                seen = np.where(self.bound[mask, subset] > 0, phases / self.bound[mask, subset], 1.0)
            old = self.ratio[mask, spans]
            self.ratio[mask, spans] = np.where(old == 1.0, seen, np.minimum(old, seen))

    def _content(self, subset: int) -> tuple[int, ...]:
        return tuple(sorted(int(self.alike[x]) for x in range(len(self.blocks)) if subset >> x & 1))

    def starts(self, most: int) -> list[Draft]:
        """The best priced deal of every grouping as a plan, best first by estimate; then the second of every grouping."""
        drafts = []
        for _, where, at in self._best(most, known=True)[:most]:
            deals, bench = self.deals[where], self.benches[0]
            state = bench.state
            for g, (mask, subset) in reversed(list(enumerate(zip(deals.masks, deals.subsets[at].tolist(), strict=True)))):
                self._load(bench, mask, subset)
                state.meta[g, :HOLDER], state.order[g] = self.cuts[mask, self._content(subset)], state.order[0].copy()
            for b in range(len(state.meta) - 1):
                state.meta[b, HOLDER] = next(g for g, mask in enumerate(deals.masks) if mask >> b & 1)
            leave_idle(self.problem, state)
            drafts.append(draft_of(self.problem, state))
        return drafts
