"""The simulator against published training iterations: the page shows the kept figures, they meet the bar, and a sample is played again."""

from __future__ import annotations

from statistics import median

import pytest

from tests.benchmarks.published.calibrate import group_of
from tests.benchmarks.published.simulated import (
    BAR,
    BEGIN,
    END,
    PAGE,
    errors,
    factored_errors,
    iteration_rows,
    played,
    read_kept,
    simulate,
    tables,
)


def test_every_published_iteration_is_kept_and_the_page_shows_it() -> None:
    rows = iteration_rows()
    assert len(rows) == 19 and list(read_kept()) == [row.number for row in rows]
    assert all(None not in (row.dp, row.pp, row.tp) for row in rows)
    assert PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0] == "\n" + tables(read_kept()), "run: python -m tests.benchmarks.published.simulated"


def test_the_kept_figures_meet_the_bar_with_and_without_factors() -> None:
    """All rows; then, with factors, each half from the other, without the clusters of several GPU classes, which have no one class."""
    predictions = played(read_kept())
    assert median(map(abs, errors(predictions))) <= BAR
    assert median(map(abs, factored_errors(predictions))) <= BAR
    of_one_class = [p for p in predictions if group_of(p.row)[1] != "mixed"]
    for half in (0, 1):
        assert median(map(abs, factored_errors(of_one_class, half))) <= BAR


@pytest.mark.parametrize("number", [203, 210, 211, 214, 217, 219])
def test_a_sample_played_again_gives_the_kept_figures(number: int) -> None:
    """vTrain in one machine and over eight, Sailor's mixed machines in stages and in replicas, its GH200s."""
    row = next(row for row in iteration_rows() if row.number == number)
    assert simulate(row) == pytest.approx(read_kept()[number], rel=1e-4)
