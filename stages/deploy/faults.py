"""What preflight found: everything that is wrong, told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from artifacts.deployment import Check
from artifacts.errors import ClusterChanged, HetrlError, InfeasiblePlan, InputError, RunnerUnavailable

# The error that is raised when several kinds of fault meet: the first of these. What the cluster is comes before what is asked of it.
_ORDER: tuple[type[HetrlError], ...] = (ClusterChanged, InputError, InfeasiblePlan, RunnerUnavailable)


@dataclass(frozen=True)
class Fault:
    """``kind`` decides the exit status, ``fix`` is what the person can do."""

    kind: type[HetrlError]
    text: str
    fix: str


@dataclass(frozen=True)
class Report:
    """Outcome of some checks."""

    checks: tuple[Check, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __add__(self, other: Report) -> Report:
        return Report(self.checks + other.checks, self.faults + other.faults)


def checked(name: str, faults: Sequence[Fault], found: str = "") -> Report:
    """One check as a report."""
    return Report((Check(name=name, ok=not faults, found="; ".join(f.text for f in faults) or found),), tuple(faults))


def raise_if_any(report: Report) -> None:
    """Raise one error that lists every fault; its kind is that of the gravest."""
    if not report.faults:
        return
    kind = min((f.kind for f in report.faults), key=_ORDER.index)
    texts = list(dict.fromkeys(f.text for f in report.faults))
    fixes = list(dict.fromkeys(f.fix for f in sorted(report.faults, key=lambda f: _ORDER.index(f.kind))))
    listed = "; ".join(f"({i}) {text}" for i, text in enumerate(texts, 1))
    raise kind(texts[0] if len(texts) == 1 else f"{len(texts)} things are in the way: {listed}", fix="; ".join(fixes),
               details={"faults": [{"kind": f.kind.kind, "text": f.text, "fix": f.fix} for f in report.faults]})
