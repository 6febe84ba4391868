"""A broken rule, and the cheapest change that would mend it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from artifacts.errors import InfeasiblePlan

SETTING, CONSTRAINT, JOB, HARDWARE = 1, 2, 3, 4
"""What a mend costs, cheapest first: a setting of the run, a constraint the user set, the job itself, other hardware."""


@dataclass(frozen=True)
class Violation:
    """``rule`` is its short name, ``where`` the task, group or device, ``constraint`` the user's own key where that is what is broken."""

    rule: str
    where: str
    message: str
    mend: str
    mend_cost: int = JOB
    constraint: str = ""


def infeasible(violations: list[Violation]) -> InfeasiblePlan:
    """One error that carries all violations; its fix is the cheapest mend."""
    ordered = sorted(dict.fromkeys(violations), key=lambda v: v.mend_cost)
    head = ordered[0]
    count = f"{len(ordered)} rules are broken: " if len(ordered) > 1 else ""
    named = "; ".join(v.message for v in ordered[:4]) + (f"; and {len(ordered) - 4} more" if len(ordered) > 4 else "")
    return InfeasiblePlan(count + named, fix=head.mend, details={"violations": [asdict(v) for v in ordered]})
