"""The search in tables: what each arm reached, what each operator was good for."""

from __future__ import annotations

from artifacts.search import Level, Search
from artifacts.units import show_seconds
from artifacts.views.tables import Table
from artifacts.views.text import clean, number, percent


def arm_table(search: Search, *, limit: int = 12) -> Table:
    arms = sorted(search.arms, key=lambda a: (a.best_s is None, a.best_s or 0.0, a.name))[:limit]
    rows = [
        (clean(a.name), f"{a.evaluations:,}", str(a.rounds), "nothing feasible" if a.best_s is None else show_seconds(a.best_s))
        for a in arms
    ]
    return Table(("Arm", "Evaluations", "Rounds", "Best iteration"), rows, frozenset({1, 2, 3}))


def operator_table(search: Search) -> Table:
    rows = [(clean(o.name), f"{o.tried:,}", f"{o.improved:,}", percent(o.improved / o.tried) if o.tried else "–") for o in search.operators]
    return Table(("Operator", "Tried", "Improved", "Success"), rows, frozenset({1, 2, 3}))


def front_table(search: Search) -> Table:
    """Plans that no other beats in both throughput and cost; the chosen one is marked."""
    rows = [
        (
            f"{number(p.throughput_samples_per_s)} samples/s",
            show_seconds(p.iteration_time_s),
            number(p.cost_per_sample),
            clean(", ".join(f"{n} × {name}" for name, n in p.devices.items())),
            "chosen" if p.chosen else "",
        )
        for p in search.front
    ]
    return Table(("Throughput", "Iteration", "Cost of a sample", "Devices", ""), rows, frozenset({0, 1, 2}))


def space_table(search: Search) -> Table:
    """How many plans there are, level by level."""
    rows = [(clean(level.name), _plans(level)) for level in search.space]
    return Table(("Search space", "Plans"), rows, frozenset({1}))


def _plans(level: Level) -> str:
    if 0 < len(level.count) <= 15:
        return f"{int(level.count):,}"
    return f"{'' if level.exact else 'about '}10^{level.log10:.1f}"
