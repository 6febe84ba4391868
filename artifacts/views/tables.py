"""Rows for a table: predicted against measured."""

from __future__ import annotations

from artifacts.units import show_seconds
from artifacts.validation import Validation
from artifacts.views.comparison import comparison_rows
from artifacts.views.text import clean, percent, task_title


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
    return clean(value).translate(str.maketrans({"<": "‹", ">": "›", "&": "+", "`": "'", "[": "(", "]": ")", "|": "/"}))
