"""One factor per GPU class and phase of a source, fitted on half of its rows and tested on the other, both ways round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.benchmarks.published.facts import run_of
from tests.benchmarks.published.predict import Prediction
from tests.benchmarks.published.rows import Row
from tests.benchmarks.published.selection import kind_of, source_name

Group = tuple[str, str, str]
"""(source, GPU class, phase)."""


@dataclass(frozen=True)
class Test:
    """A row's prediction times the factor that the other half of its group gives. ``half``: 0 where fitted on the even rows, else 1."""

    prediction: Prediction
    factor: float
    half: int

    @property
    def error(self) -> float:
        return self.prediction.error(self.prediction.calibrated(self.factor))


def group_of(row: Row) -> Group:
    run = run_of(row)
    assert run is not None
    return source_name(row), "mixed" if run.machines else run.part, kind_of(row)[1]


def factor_of(predictions: Sequence[Prediction]) -> float:
    """Measured over predicted time: the median, which one odd row does not move."""
    return median(p.slowdown for p in predictions)


def halves(predictions: Iterable[Prediction]) -> dict[Group, tuple[list[Prediction], list[Prediction]]]:
    """Alternate rows of each group, in the order of the file."""
    groups: dict[Group, list[Prediction]] = defaultdict(list)
    for prediction in sorted(predictions, key=lambda p: p.row.number):
        groups[group_of(prediction.row)].append(prediction)
    return {group: (members[::2], members[1::2]) for group, members in groups.items()}


def cross_tests(predictions: Iterable[Prediction]) -> list[Test]:
    """Every row of a group of two or more, tested with the factor of the half it is not in."""
    found = []
    for even, odd in halves(predictions).values():
        for half, (fitted, tested) in enumerate(((even, odd), (odd, even))):
            if fitted and tested:
                found += [Test(prediction=p, factor=factor_of(fitted), half=half) for p in tested]
    return found
