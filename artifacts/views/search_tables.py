"""The search in tables: what each arm reached, what each operator was good for."""

from __future__ import annotations

from artifacts.search import Search
from artifacts.units import show_seconds
from artifacts.views.tables import Table
from artifacts.views.text import clean, percent


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
