"""Tables: what a table is here, and predicted against measured as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from artifacts.units import show_seconds
from artifacts.validation import Row, Validation
from artifacts.views.comparison import comparison_rows
from artifacts.views.text import clean, percent, task_title

_PLAIN = str.maketrans("<>&`[]|", "‹›+'()/")


@dataclass(frozen=True)
class Table:
    """Cells as text; ``numeric`` names the columns that are set flush right."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[int] = frozenset()


def error_table(validation: Validation) -> Table:
    rows = [_error_row("whole iteration", validation.iteration)]
    rows += [_error_row(task_title(r.task), r) for r in validation.rows]
    columns: tuple[str, ...] = ("Task", "Device class", "Predicted", "Measured", "Spread", "Iterations", "Error")
    if validation.iteration.paper_s is not None:
        columns = (*columns, "Published model", "Its error")
        rows = [(*cells, *_paper(r)) for cells, r in zip(rows, (validation.iteration, *validation.rows), strict=True)]
    return Table(columns, rows, frozenset(range(2, len(columns))))


def _paper(r: Row) -> tuple[str, str]:
    if r.paper_s is None or r.paper_error is None:
        return "–", "–"
    return show_seconds(r.paper_s), percent(r.paper_error, signed=True)


def _error_row(title: str, r: Row) -> tuple[str, ...]:
    return (
        title,
        clean(r.device_class),
        show_seconds(r.predicted_s),
        show_seconds(r.measured_s),
        percent(r.measured_spread),
        str(r.iterations),
        percent(r.error, signed=True),
    )


def validation_rows(validation: Validation) -> list[dict[str, str]]:
    """A row the whole iteration and a row a task and device class, as text with units; safe to show as Markdown or HTML."""
    rows = []
    for row in comparison_rows(validation):
        whole = row is validation.iteration
        rows.append(
            {
                "task": "whole iteration" if whole else _plain(task_title(row.task)),
                "device class": "" if whole else _plain(row.device_class),
                "predicted": show_seconds(row.predicted_s),
                "measured": show_seconds(row.measured_s),
                "error": percent(row.error, signed=True),
                "spread": percent(row.measured_spread),
                "iterations": str(row.iterations),
                "verdict": ("ok" if validation.verdict == "ok" else "off") if whole else "",
            }
        )
    return rows


def _plain(value: str) -> str:
    return clean(value).translate(_PLAIN)
