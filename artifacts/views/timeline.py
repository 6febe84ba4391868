"""The timeline of one iteration: a lane a group, a bar a task; predicted, and measured below it where a run was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.units import show_seconds
from artifacts.views.palette import FAINT, GRID, INK, MUTED, PAPER, group_styles
from artifacts.views.svg import Svg, fit, text_width, time_ticks
from artifacts.views.text import clean, task_title

WIDTH = 1080.0
_LABEL, _LANE, _BAR = 170.0, 34.0, 26.0
BESIDE = ""
LOG_PROB = "actor_log_prob"


@dataclass(frozen=True)
class Span:
    """A stretch of one lane, in seconds from the start of the iteration. ``lane`` is a group's name, or ``BESIDE``."""

    lane: str
    name: str
    start_s: float
    end_s: float


def predicted_spans(plan: Plan, prediction: Prediction) -> list[Span]:
    """Tasks as the prediction places them, and the actor's log-probabilities before the training of its group; what else is no task has no
    start of its own and is drawn last, ending with the iteration.
    """
    spans = _placed(plan, prediction)
    rest = {name: s for name, s in prediction.other_s.items() if name not in {span.name for span in spans}}
    at = max(max((s.end_s for s in spans), default=0.0), prediction.iteration_time_s - sum(rest.values()))
    return spans + _in_a_row(rest, at)


def _placed(plan: Plan, prediction: Prediction) -> list[Span]:
    """What has a place in a group. The log-probabilities are computed before the group's own inference, or when that of others begins."""
    spans = [
        Span(plan.group_of(name).name, name, t.start_s, t.start_s + t.time_s) for name, t in prediction.tasks.items() if name in plan.tasks
    ]
    seconds, inference = prediction.other_s.get(LOG_PROB, 0.0), [s for s in spans if s.name.endswith("_inference")]
    if not seconds or not inference or "actor_training" not in plan.tasks:
        return spans
    lane = plan.group_of("actor_training").name
    before = min((s.start_s - seconds for s in inference if s.lane == lane), default=min(s.start_s for s in inference))
    if before < -1e-6 * prediction.iteration_time_s:
        return spans
    return [*spans, Span(lane, LOG_PROB, max(0.0, before), max(0.0, before) + seconds)]


def measured_spans(plan: Plan, prediction: Prediction, medians: Mapping[str, float]) -> list[Span]:
    """Measured durations in the predicted order: the log has durations and no starts.

    A task starts when the last of those that end before it in the prediction has ended.
    """
    ends: dict[str, float] = {}
    spans = []
    placed = sorted((s for s in _placed(plan, prediction) if s.name in medians), key=lambda s: (s.start_s, s.name))
    for span in placed:
        slack = 1e-6 + 1e-3 * prediction.iteration_time_s
        before = [ends[other.name] for other in placed if other.name in ends and other.end_s <= span.start_s + slack]
        begin = max(before, default=0.0)
        ends[span.name] = begin + medians[span.name]
        spans.append(Span(span.lane, span.name, begin, ends[span.name]))
    beside = {k: v for k, v in medians.items() if k not in ends and v > 0}
    return spans + _in_a_row(beside, max(ends.values(), default=0.0))


def _in_a_row(durations: Mapping[str, float], at: float) -> list[Span]:
    spans = []
    for name, seconds in durations.items():
        if seconds > 0:
            spans.append(Span(BESIDE, name, at, at + seconds))
            at += seconds
    return spans


def timeline(plan: Plan, sections: Sequence[tuple[str, Sequence[Span], float]]) -> Markup:
    """``sections``: (title, spans, seconds of the whole iteration), drawn below each other on one time axis."""
    styles = group_styles(plan)
    horizon = max([t for _, _, t in sections] + [s.end_s for _, spans, _ in sections for s in spans] + [1e-9]) * 1.1
    scale = (WIDTH - _LABEL - 14) / horizon
    lanes = [[g.name for g in plan.groups] + ([BESIDE] if any(s.lane == BESIDE for s in spans) else []) for _, spans, _ in sections]
    height = sum(30 + _LANE * len(names) + 10 for names in lanes) + 24
    svg = Svg(WIDTH, height, label="timeline of one iteration, tasks by group")
    for tick, label in time_ticks(horizon, 8):
        x = _LABEL + tick * scale
        svg.line(x, 24, x, height - 22, stroke=GRID)
        svg.text(x, height - 6, label, size=11, fill=MUTED, anchor="middle")
    y = 0.0
    for (title, spans, whole), names in zip(sections, lanes, strict=True):
        svg.text(0, y + 17, title, bold=True)
        y += 28
        for name in names:
            style = styles.get(name)
            label = f"{style.letter} · {clean(name)}" if style else "beside the tasks"
            svg.text(0, y + _LANE / 2 + 3, fit(label, _LABEL - 12), fill=INK if style else MUTED)
            svg.line(_LABEL, y + _LANE - 1, WIDTH - 14, y + _LANE - 1, stroke=GRID)
            _lane(svg, [s for s in spans if s.lane == name], y, scale, style.fill if style else FAINT, style.text if style else INK)
            y += _LANE
        x = _LABEL + whole * scale
        svg.line(
            x,
            y - _LANE * len(names) - 4,
            x,
            y + 2,
            stroke=INK,
            width=1.5,
            dashed=True,
            title=f"end of the iteration: {show_seconds(whole)}",
        )
        svg.text(x - 4, y - _LANE * len(names) - 6, show_seconds(whole), size=11, anchor="end", bold=True)
        y += 12
    return svg.markup()


def _lane(svg: Svg, spans: Sequence[Span], y: float, scale: float, fill: str, ink: str) -> None:
    """Bars, each labelled inside where that fits, else in the free space beside it, else shortened."""
    bars = _stack(spans)
    for index, (row, span) in enumerate(bars):
        x, width, top = _LABEL + span.start_s * scale, max((span.end_s - span.start_s) * scale, 1.5), y + 3 + row * 3
        name, seconds = task_title(span.name), show_seconds(span.end_s - span.start_s)
        svg.rect(x, top, width, _BAR, fill=fill, stroke=PAPER, radius=2, title=f"{name}: {seconds}, from {show_seconds(span.start_s)}")
        before = _LABEL + max((s.end_s for _, s in bars[:index]), default=0.0) * scale
        after = _LABEL + min((s.start_s for _, s in bars[index + 1 :]), default=(WIDTH - 8 - _LABEL) / scale) * scale
        base = top + _BAR / 2 + 4
        for label in (f"{name} {seconds}", name):
            need = text_width(label, 11.5) + 8
            if need <= width:
                svg.text(x + 4, base, label, size=11.5, fill=ink)
            elif need <= after - x - width:
                svg.text(x + width + 4, base, label, size=11.5)
            elif need <= x - before:
                svg.text(x - 4, base, label, size=11.5, anchor="end")
            else:
                continue
            break
        else:
            svg.text(x + 4, base, fit(name, width - 6, 11.5), size=11.5, fill=ink)


def _stack(spans: Sequence[Span]) -> list[tuple[int, Span]]:
    """Bars that overlap inside a lane are offset by a row, so that none hides another whole."""
    rows: list[float] = []
    out = []
    for span in sorted(spans, key=lambda s: (s.start_s, s.name)):
        row = next((i for i, end in enumerate(rows) if end <= span.start_s + 1e-9), len(rows))
        rows[row : row + 1] = [span.end_s]
        out.append((row, span))
    return out
