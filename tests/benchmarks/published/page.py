"""``infra/docs/accuracy.md``: the tables, around the words of ``accuracy.md.j2``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tests.benchmarks.published.calibrate import Test, cross_tests
from tests.benchmarks.published.predict import Prediction, predict
from tests.benchmarks.published.rows import Row, published_rows
from tests.benchmarks.published.selection import SOURCES, kind_of, reason_left_out, scored_rows, source_name

PAGE = Path(__file__).parents[3] / "infra/docs/accuracy.md"
BARS = {"training iteration": (0.30, 0.10), "RL phase": (0.35, 0.15), "decode": (0.35, 0.15)}
"""What the bars speak of → (largest median absolute error without calibration, with it)."""

FIGURES = ("rows", "model", "paper", "fitted on even", "fitted on odd", "both")


def render() -> str:
    """The page's text."""
    predictions = [predict(row) for row in scored_rows()]
    tests = cross_tests(predictions)
    names = [name for name in SOURCES.values() if any(source_name(p.row) == name for p in predictions)]
    template = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    ).get_template("accuracy.md.j2")
    return template.render(
        total=len(published_rows()),
        scored=len(predictions),
        summary=_by_kind(predictions, tests),
        sources=_by_source(names, predictions, tests),
        tables=[(name, _rows([p for p in predictions if source_name(p.row) == name], tests)) for name in names],
        left_out=_left_out(row for row in published_rows() if reason_left_out(row) is not None),
    )


def median_error(errors: Iterable[float]) -> float | None:
    """Median absolute error; None of none."""
    found = [abs(e) for e in errors]
    return median(found) if found else None


def _by_kind(predictions: Sequence[Prediction], tests: Sequence[Test]) -> str:
    lines = []
    for kind in (*BARS, "operator"):
        figures = _figures(
            [p for p in predictions if kind_of(p.row)[0] == kind], [t for t in tests if kind_of(t.prediction.row)[0] == kind]
        )
        before, after = (f"≤ {100 * bar:.0f} %" for bar in BARS[kind]) if kind in BARS else ("", "")
        lines.append([kind, *figures[:3], before, *figures[3:], after])
    return _table(["", *FIGURES[:3], "bar", *FIGURES[3:], "bar"], lines)


def _by_source(names: Sequence[str], predictions: Sequence[Prediction], tests: Sequence[Test]) -> str:
    lines = []
    for name in names:
        own = [p for p in predictions if source_name(p.row) == name]
        lines.append([name, *_figures(own, [t for t in tests if source_name(t.prediction.row) == name])])
    return _table(["source", *FIGURES], lines)


def _figures(predictions: Sequence[Prediction], tests: Sequence[Test]) -> list[str]:
    """What ``FIGURES`` names."""
    return [
        str(len(predictions)),
        _percent(median_error(p.error(p.model) for p in predictions)),
        _percent(median_error(p.error(p.paper) for p in predictions if p.paper is not None)),
        *(_percent(median_error(t.error for t in tests if t.half == half)) for half in (0, 1)),
        _percent(median_error(t.error for t in tests)),
    ]


def _rows(predictions: Sequence[Prediction], tests: Sequence[Test]) -> str:
    calibrated = {t.prediction.row.number: t.error for t in tests}
    lines = [
        [
            str(p.row.number),
            p.row.phase,
            p.row.text,
            f"{_figure(p.row.value)} {_unit(p.row)}",
            _figure(p.model),
            _signed(p.error(p.model)),
            _signed(calibrated.get(p.row.number)),
            _signed(p.error(p.paper) if p.paper is not None else None),
        ]
        for p in predictions
    ]
    titles = ["line", "quantity", "run, dp×pp×tp", "measured", "model", "error", "calibrated error", "paper error"]
    return _table(titles, lines)


def _left_out(rows: Iterable[Row]) -> str:
    """Runs of neighbouring rows of one source that one rule leaves out."""
    lines = []
    for (name, reason), members in groupby(rows, key=lambda row: (source_name(row), reason_left_out(row))):
        group = list(members)
        models = dict.fromkeys(row.model or row.phase for row in group)
        phases = dict.fromkeys(row.phase for row in group)
        lines.append([_lines([row.number for row in group]), name, ", ".join(models), ", ".join(phases), str(reason)])
    return _table(["lines", "source", "model", "quantities", "reason"], lines)


def _lines(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows)


def _unit(row: Row) -> str:
    return row.unit.removeprefix("output ")


def _figure(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _percent(error: float | None) -> str:
    return "–" if error is None else f"{100 * error:.0f} %"


def _signed(error: float | None) -> str:
    return "–" if error is None else f"{100 * error:+.0f} %".replace("-", "−")
