"""Which cells each published experiment has, whole and quick. Cells are shared: what two experiments need is played once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from artifacts.errors import InputError
from flows.replay.cells import PROMPTS, Cell, Mode, Workload
from flows.replay.fleets import A100_ALONE, ALL_GPUS, COMBINATIONS, SETTINGS, SMALL
from flows.replay.published import BALANCING_GAIN

EXPERIMENTS = ("end-to-end", "load-balancing", "search", "exact", "cost-model", "combinations", "batch")
AUTO, SHA_EA, DEAP, EXACT = 40_000, 4_000, 4_000, 10_000_000
"""Evaluations. One of ``auto`` takes about a fifteenth of one of ``sha-ea`` or ``deap``; ``exact`` ends by itself."""
ENUMERATED, ENUMERATED_QUICK = 1_000_000, 100_000
"""verl and StreamRL enumerate, promising plans first. The first is more than verl has to enumerate on 64 GPUs."""
BASELINES: dict[Mode, tuple[str, ...]] = {"sync": ("verl",), "async": ("verl", "streamrl")}
SEARCHED = ("auto", "sha-ea", "deap", "verl")
OTHER_BATCHES = (48, 1024)
"""Prompts an iteration besides 384: the printed batch of 384 read as sequences, and a larger one."""


@dataclass(frozen=True)
class Replay:
    """Which experiments, whole or quick."""

    experiments: tuple[str, ...]
    quick: bool

    def cells(self) -> list[Cell]:
        """All of them, each once; the smaller experiments first, so that each kind has something to show early."""
        made = {name: list(getattr(self, name.replace("-", "_"))()) for name in self.experiments}
        return list(dict.fromkeys(cell for name in sorted(made, key=lambda n: len(made[n])) for cell in made[name]))

    @property
    def workloads(self) -> list[Workload]:
        sizes, algorithms = (("8B",), ("grpo",)) if self.quick else (("4B", "8B", "14B"), ("ppo", "grpo"))
        return [Workload(size, algorithm, mode) for size, algorithm, mode in product(sizes, algorithms, ("sync", "async"))]  # type: ignore[arg-type]

    def cell(self, fleet: str, workload: Workload, solver: str = "auto") -> Cell:
        enumerated = ENUMERATED_QUICK if self.quick else ENUMERATED
        budgets = {"auto": AUTO, "sha-ea": SHA_EA, "deap": DEAP, "exact": EXACT}
        return Cell(fleet, workload, solver, budgets.get(solver, enumerated))

    def end_to_end(self) -> Iterator[Cell]:
        for setting, workload in product(SETTINGS, self.workloads):
            for solver in ("auto", *BASELINES[workload.mode]):
                yield self.cell(setting, workload, solver)

    def load_balancing(self) -> Iterator[Cell]:
        for setting, workload in product(BALANCING_GAIN, self.workloads):
            if workload.mode == "sync":
                yield self.cell(setting, workload)
                yield replace(self.cell(setting, workload), balanced=False)

    def search(self) -> Iterator[Cell]:
        for setting in ("multi-country",) if self.quick else SETTINGS:
            yield from self.searched(setting)

    def searched(self, setting: str) -> list[Cell]:
        """Searched longer than elsewhere, but where it is quick; priced only, but where the plan is played for another experiment."""
        cells = [self.cell(setting, Workload("8B", "grpo"), solver) for solver in SEARCHED]
        longer = {"auto": 10, "sha-ea": 5, "deap": 5, "verl": 1}
        if self.quick:
            return [replace(c, played=c.solver in ("auto", "verl")) for c in cells]
        return [replace(c, played=c.solver == "verl", evaluations=c.evaluations * longer[c.solver]) for c in cells]

    def exact(self) -> Iterator[Cell]:
        for fleet in list(SMALL)[:1] if self.quick else SMALL:
            for solver in ("exact", "sha-ea", "auto"):
                yield replace(self.cell(fleet, Workload("4B", "grpo"), solver), played=False)

    def cost_model(self) -> Iterator[Cell]:
        yield from self.end_to_end()

    def combinations(self) -> Iterator[Cell]:
        for fleet, workload in product((*COMBINATIONS, ALL_GPUS), self.workloads):
            if not self.quick or workload.mode == "sync":
                yield self.cell(fleet, workload)
                yield self.cell(fleet, workload, "verl")
        for setting in SETTINGS[1:]:
            for workload in self.workloads:
                yield self.cell(setting, workload)

    def batch(self) -> Iterator[Cell]:
        """With the published one among them."""
        for prompts in (PROMPTS, *OTHER_BATCHES[: 1 if self.quick else None]):
            for solver in ("auto", "verl"):
                yield self.cell("multi-country", Workload("8B", "grpo", "sync", prompts), solver)


def chosen(names: list[str], *, quick: bool) -> Replay:
    """The experiments by name; none named: all. Raises ``InputError`` for one there is not."""
    for name in names:
        if name not in EXPERIMENTS:
            raise InputError(f"there is no experiment {name[:40]!r}", fix=f"choose from {', '.join(EXPERIMENTS)}")
    return Replay(tuple(e for e in EXPERIMENTS if e in names or not names), quick)


def a100_alone(replay: Replay, workload: Workload) -> Cell:
    """HetRL on the 24 A100 in one region."""
    return replay.cell(A100_ALONE, workload)
