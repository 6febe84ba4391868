"""Predicted against measured, a pair of bars a row."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from artifacts.units import show_seconds
from artifacts.validation import Row, Validation
from artifacts.views.palette import GRID, INK, MEASURED, MUTED, PREDICTED, WARNING
from artifacts.views.svg import Svg, fit, time_ticks
from artifacts.views.text import clean, percent, task_title

WIDTH = 1080.0
_LABEL, _RIGHT, _ROW = 230.0, 190.0, 46.0


def comparison_rows(validation: Validation) -> list[Row]:
    """The whole iteration first, then the rows by measured time, longest first."""
    return [validation.iteration, *sorted(validation.rows, key=lambda r: (-r.measured_s, r.task, r.device_class))]


def comparison_bars(validation: Validation) -> Markup:
    """Blue: predicted. Orange: median measured, with its interquartile range as a whisker."""
    rows = comparison_rows(validation)
    top = max(max(r.predicted_s, r.measured_s * (1 + r.measured_spread / 2)) for r in rows) or 1e-9
    scale = (WIDTH - _LABEL - _RIGHT) / top
    height = _ROW * len(rows) + 50
    svg = Svg(WIDTH, height, label="predicted and measured time by task")
    svg.rect(_LABEL, 2, 14, 12, fill=PREDICTED)
    svg.text(_LABEL + 20, 12, "predicted")
    svg.rect(_LABEL + 100, 2, 14, 12, fill=MEASURED)
    svg.text(_LABEL + 120, 12, "measured (median; line: interquartile range)")
    for tick, label in time_ticks(top):
        x = _LABEL + tick * scale
        svg.line(x, 24, x, height - 20, stroke=GRID)
        svg.text(x, height - 5, label, size=11, fill=MUTED, anchor="middle")
    for index, row in enumerate(rows):
        y = 28 + index * _ROW
        whole = row is validation.iteration
        svg.text(0, y + 16, fit("whole iteration" if whole else task_title(row.task), _LABEL - 10), bold=whole)
        svg.text(0, y + 31, "" if whole else fit(clean(row.device_class), _LABEL - 10, 11), size=11, fill=MUTED)
        svg.rect(_LABEL, y, row.predicted_s * scale, 17, fill=PREDICTED, title=f"predicted {show_seconds(row.predicted_s)}")
        svg.rect(
            _LABEL,
            y + 18,
            row.measured_s * scale,
            17,
            fill=MEASURED,
            title=f"measured {show_seconds(row.measured_s)}, {row.iterations} iterations",
        )
        half = row.measured_s * row.measured_spread / 2
        if half:
            svg.line(
                _LABEL + max(row.measured_s - half, 0) * scale,
                y + 26.5,
                _LABEL + (row.measured_s + half) * scale,
                y + 26.5,
                stroke=INK,
                width=1.5,
            )
        end = _LABEL + max(row.predicted_s, row.measured_s + half) * scale + 8
        svg.text(
            end,
            y + 13,
            f"{show_seconds(row.predicted_s)}  {percent(row.error, signed=True)}",
            size=11.5,
            fill=WARNING if abs(row.error) > validation.bound else INK,
        )
        svg.text(end, y + 31, show_seconds(row.measured_s), size=11.5)
    return svg.markup()


def worst(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda r: abs(r.error), default=None)
