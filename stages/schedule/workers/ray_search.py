"""``workers: ray``: the same solver with as many seeds as workers, on the CPUs of a Ray cluster; the best plan of all is priced here.

Every search has the whole budget, and the first has the seed it would have here: so the plan is never worse than without the cluster, and
with a budget of evaluations, a seed and a number of workers it is the same again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from artifacts.errors import RunnerUnavailable, StageTimeout
from artifacts.search import Arm, Point
from stages.cluster import live
from stages.cluster.join import joined
from stages.cluster.signals import stop_signal
from stages.schedule.draft import Draft
from stages.schedule.search.evaluator import Evaluator
from stages.schedule.search.evolution import OperatorCount
from stages.schedule.search.nested_halving import SearchReport
from stages.schedule.variant import variant
from stages.schedule.workers.worker import Board, Found, Shared, Told, search_alone

ANSWER_S = 30.0
START_S = 120.0
"""How long to wait for the first search to start."""
LATE_S = 15.0
"""Under a budget of seconds: how long to wait, beside the budget again, for the others once one has ended."""
LOOK_S = 0.5
SEED_STEP, SEEDS = 1_000_003, 2**31


def ray_search(solver: str, address: str, workers: int | None, evaluator: Evaluator, seed: int, warm: Sequence[Draft]) -> SearchReport:
    """Search on the cluster until every worker's budget is spent; the evaluator holds the best plan. ``workers`` None: one a CPU.

    Raises:
        RunnerUnavailable: Ray is not installed, no cluster answers, or its nodes cannot run the search.
        StageTimeout: no search started, because the cluster's CPUs are taken.
        Whatever ``on_progress`` raises: the searches are ended, and the best plan they told of is in the evaluator.
    """
    shared = Shared(solver, variant(evaluator.problem), evaluator.budget, evaluator.without, tuple(warm))
    with stop_signal() as stop, _cluster(address):
        stop.claim()
        searches = _Searches(evaluator, [(seed + n * SEED_STEP) % SEEDS for n in range(workers or _cpus())])
        searches.run(shared)
    return searches.report()


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    try:
        from ray._private.services import canonicalize_bootstrap_address
    except ImportError:
        raise RunnerUnavailable("Ray is not installed here", fix="pip install 'hetrl[engine-cpu]', or leave out --workers ray") from None
    where = live.gcs_address(address or os.environ.get("RAY_ADDRESS") or "auto")
    if where == "auto":
        try:
            where = canonicalize_bootstrap_address("auto") or ""
        except ConnectionError:
            raise RunnerUnavailable(
                "no Ray cluster runs on this machine", fix="start one with `ray start --head`, or set RAY_ADDRESS=host:6379"
            ) from None
    live.reach(where, deadline_s=ANSWER_S)
    with joined(where):
        yield


def _cpus() -> int:
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))


class _Searches:
    """All searches of a run: what they told, how they ended, which are lost."""

    def __init__(self, evaluator: Evaluator, seeds: Sequence[int]) -> None:
        self._evaluator, self._seeds = evaluator, seeds
        self._told: dict[int, Told] = {}
        self._found: dict[int, Found] = {}
        self._lost: dict[int, str] = {}
        self._points: list[Point] = []

    def run(self, shared: Shared) -> None:
        import ray

        board: Any = ray.remote(num_cpus=0)(Board).remote()
        common, going = ray.put(shared), dict[Any, int]()
        try:
            for number, (seed, (node, slot)) in enumerate(zip(self._seeds, _places(len(self._seeds)), strict=True)):
                going[_task(node).remote(common, number, seed, slot, board)] = number
            self._follow(going, board)
        finally:
            for reference in going:
                with suppress(ray.exceptions.RayError):
                    ray.cancel(reference, force=True)
            with suppress(ray.exceptions.RayError):
                ray.kill(board)
            self._adopt()
        if not self._found:
            why = next(iter(self._lost.values()), "none ended in time")
            raise RunnerUnavailable(f"no search on the Ray cluster came to an end: {why}", fix=_mend(self._lost))

    def _follow(self, going: dict[Any, int], board: Any) -> None:
        """Until all have ended; ``going`` is left with those that are given up."""
        import ray

        began, until = time.monotonic(), float("inf")
        while going and time.monotonic() < until:
            ended, _ = ray.wait(list(going), num_returns=1, timeout=LOOK_S)
            for reference in ended:
                number = going.pop(reference)
                try:
                    self._found[number] = ray.get(reference)
                    self._told[number] = self._found[number].told
                except (ray.exceptions.RayError, ImportError) as error:
                    self._lost[number] = _why(error)
            self._read(board)
            self._progress()
            if not self._told and not self._lost and time.monotonic() > began + START_S:
                raise StageTimeout(
                    f"no search started on the Ray cluster within {START_S:g} s: its CPUs are taken", fix="see `ray status`, or wait"
                )
            if self._found and until == float("inf") and self._evaluator.budget.seconds is not None:
                until = time.monotonic() + self._evaluator.budget.seconds + LATE_S

    def _read(self, board: Any) -> None:
        import ray

        with suppress(ray.exceptions.RayError):
            read: dict[int, Told] = ray.get(board.read.remote(), timeout=ANSWER_S)
            self._told.update({number: told for number, told in read.items() if number not in self._found})

    def _progress(self) -> None:
        """The best of all so far, and how far they are on average."""
        evaluator, costs = self._evaluator, [t.cost for t in self._told.values() if t.cost is not None]
        spent, best = sum(t.evaluations for t in self._told.values()), min(costs, default=None)
        if best is not None and (not self._points or best < self._points[-1].cost_s):
            self._points.append(Point(evaluations=spent, seconds=round(evaluator.seconds, 4), cost_s=best))
        budget = evaluator.budget
        if budget.seconds is not None:
            evaluator.on_progress(min(evaluator.seconds, budget.seconds), budget.seconds, best)
        else:
            evaluator.on_progress(spent / len(self._seeds), budget.evaluations, best)

    def _adopt(self) -> None:
        """Price every search's best plan here, in their order, so that of equal plans it is always the same one."""
        evaluator, before = self._evaluator, len(self._evaluator.trajectory)
        evaluator.evaluations += sum(t.evaluations for t in self._told.values())
        for number in range(len(self._seeds)):
            told, found = self._told.get(number, Told()), self._found.get(number)
            draft = told.draft or (found.nearest if found else None)
            if draft is not None:
                evaluator.plan(draft)
        last = evaluator.trajectory[-1:] if len(evaluator.trajectory) > before else []
        evaluator.trajectory[before:] = [*(p for p in self._points if not last or p.cost_s > last[0].cost_s), *last]

    def report(self) -> SearchReport:
        arms, operators = [], dict[str, OperatorCount]()
        for number, seed in enumerate(self._seeds):
            told = self._told.get(number, Told())
            how = "" if number in self._found else f", lost: {self._lost[number]}" if number in self._lost else ", not finished"
            name = f"search {number + 1} of {len(self._seeds)}, seed {seed}{how}"
            best = told.cost if told.draft is not None else None
            arms.append(Arm(name=name, evaluations=told.evaluations, best_s=best, rounds=1))
        for found in self._found.values():
            for operator, count in found.operators.items():
                total = operators.setdefault(operator, OperatorCount())
                total.tried, total.improved = total.tried + count.tried, total.improved + count.improved
        return SearchReport(arms=arms, operators=operators, cpu_seconds=sum(f.cpu_seconds for f in self._found.values()))


def _places(count: int) -> list[tuple[str, int]]:
    """(node, core) for each search: every CPU of every living node once, then again."""
    import ray

    nodes = [n for n in ray.nodes() if n["Alive"]]
    every = [(n["NodeID"], slot) for n in nodes for slot in range(int(n["Resources"].get("CPU", 0)))] or [(nodes[0]["NodeID"], 0)]
    return [every[i % len(every)] for i in range(count)]


def _task(node: str) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=True)
    return ray.remote(num_cpus=1, max_retries=1)(search_alone).options(scheduling_strategy=there)


def _why(error: BaseException) -> str:
    """One line: Ray's errors are paragraphs."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    missing = next((line for line in reversed(lines) if "ModuleNotFoundError" in line or "ImportError" in line), "")
    return (missing or f"{type(error).__name__}: {lines[-1] if lines else 'no message'}")[:300]


def _mend(lost: dict[int, str]) -> str:
    missing = any("ModuleNotFoundError" in why or "ImportError" in why for why in lost.values())
    return "install this version of hetrl on every node" if missing else "see Ray's logs, or leave out --workers ray"
