"""Curves by matplotlib, as inline SVG: text stays text, and the same data gives the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.throughput import Throughput
from artifacts.validation import TrendPoint
from artifacts.views.palette import FAINT, GRID, INK, MEASURED, MUTED, PREDICTED
from artifacts.views.text import clean, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "hetrl",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.axisbelow": True,
    "text.parse_math": False,
}
MAX_POINTS = 400


def _draw(label: str, panels: Sequence[Callable[[Axes], None]], *, height: float = 2.6, width: float = 10.8) -> Markup:
    """Panels side by side. matplotlib is imported here: it takes a second, and most users of the views draw no curve."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        for panel, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
            panel(axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(buffer.getvalue(), label=label, width_px=width * 96)


def _inline(svg: str, *, label: str, width_px: float) -> Markup:
    """The ``<svg>`` element alone, without document type and metadata (which name addresses), with ids of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = svg.replace("xlink:href", "href")
    view = re.search(r'viewBox="([^"]+)"', svg)
    body = svg[svg.index(">") + 1 :]
    prefix = re.sub(r"[^a-z]+", "-", label.lower())
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = body.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')
    box = view.group(1) if view else "0 0 800 200"
    return Markup(f'<svg role="img" aria-label="{label}" viewBox="{box}" style="width:100%;max-width:{width_px:.0f}px;height:auto">{body}')


def search_chart(search: Search, prediction: Prediction) -> Markup | None:
    """Best cost against seconds and against evaluations, with the bound no plan can beat; None without a trajectory."""
    if not search.trajectory:
        return None

    def panel(xs: Sequence[float], end: float, unit: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            ys = [p.cost_s for p in search.trajectory]
            axes.step([*xs, max(end, xs[-1])], [*ys, ys[-1]], where="post", color=PREDICTED, linewidth=1.8, label="best plan so far")
            axes.plot(xs, ys, "o", color=PREDICTED, markersize=3)
            bound = max(prediction.bound_s, prediction.proved_bound_s or 0.0)
            if bound > 0:
                proved = (prediction.proved_bound_s or 0) >= bound
                axes.axhline(bound, color=MEASURED, linestyle="--", linewidth=1.2, label="proved bound" if proved else "roofline bound")
            if xs[0] > 0 and max(end, xs[-1]) > 50 * xs[0]:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(lambda x, _: number(x))
            axes.set_ylim(bottom=0)
            axes.set_xlabel(unit)
            axes.set_ylabel("iteration, s")
            axes.legend(loc="best")

        return draw

    return _draw(
        "search trajectory",
        [
            panel([p.seconds for p in search.trajectory], search.seconds, "seconds of search"),
            panel([float(p.evaluations) for p in search.trajectory], float(search.evaluations), "plans evaluated"),
        ],
    )


def front_chart(search: Search) -> Markup | None:
    """Cost of a sample against throughput, the chosen plan marked; None with fewer than two plans on the front."""
    points = sorted(search.front, key=lambda p: p.throughput_samples_per_s)
    if len(points) < 2:
        return None

    def draw(axes: Axes) -> None:
        xs, ys = [p.throughput_samples_per_s for p in points], [p.cost_per_sample for p in points]
        axes.plot(xs, ys, "o-", color=PREDICTED, label="on the front")
        chosen = [p for p in points if p.chosen]
        marks = [p.throughput_samples_per_s for p in chosen], [p.cost_per_sample for p in chosen]
        axes.plot(*marks, "o", color=MEASURED, markersize=9, label="chosen")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("throughput, samples/s")
        axes.set_ylabel("cost of a sample")
        axes.legend(loc="upper left")

    return _draw("throughput against cost", [draw])


def training_charts(throughput: Throughput, prediction: Prediction) -> Markup | None:
    """Reward, loss and seconds per iteration (with the predicted value); None when no iteration finished."""
    from matplotlib.ticker import MaxNLocator

    steps = throughput.iterations
    if not steps:
        return None

    def curve(title: str, values: Sequence[float | None], color: str, expected: float | None = None) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            points = thin([(float(s.step), v) for s, v in zip(steps, values, strict=True) if v is not None])
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                "o-" if len(points) <= 60 else "-",
                color=color,
                markersize=3.5,
                linewidth=1.5,
                label="measured",
            )
            axes.set_title(title, loc="left")
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
            if len(points) == 1:
                axes.set_xlim(points[0][0] - 1, points[0][0] + 1)
            if expected is not None:
                axes.axhline(expected, color=PREDICTED, linestyle="--", linewidth=1.3, label="predicted")
                axes.set_ylim(bottom=0)
                axes.legend(loc="best")
            if not points:
                axes.text(0.5, 0.5, "not reported", transform=axes.transAxes, ha="center", color=MUTED)

        return draw

    return _draw(
        "training curves",
        [
            curve("Mean reward", [s.reward_mean for s in steps], "#009e73"),
            curve("Loss", [s.loss for s in steps], "#cc79a7"),
            curve("Seconds per iteration", [s.time_s for s in steps], MEASURED, expected=prediction.iteration_time_s),
        ],
    )


def thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most ``MAX_POINTS`` points: beyond that, means of equal stretches."""
    size = -(-len(points) // MAX_POINTS)
    if size <= 1:
        return points
    chunks = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in c) / len(c), sum(y for _, y in c) / len(c)) for c in chunks]


def trend_chart(points: Sequence[TrendPoint], *, bound: float) -> Markup | None:
    """Error of the iteration and median error of the rows over runs, oldest first; None with fewer than two runs."""
    if len(points) < 2:
        return None

    def draw(axes: Axes) -> None:
        xs = range(1, len(points) + 1)
        axes.axhspan(-100 * bound, 100 * bound, color="#e6f4ea", zorder=0, label=f"within ±{100 * bound:g} %")
        axes.axhline(0, color=FAINT, linewidth=1)
        axes.plot(
            xs, [100 * p.iteration_error for p in points], "o-", color=PREDICTED, label="iteration: (predicted − measured) / measured"
        )
        axes.plot(xs, [100 * p.median_abs_error for p in points], "s--", color=MEASURED, label="median |error| over tasks")
        axes.set_xticks(list(xs) if len(points) <= 20 else [1, len(points)])
        axes.set_xticklabels([clean(p.version)[:8] for p in points] if len(points) <= 10 else [str(x) for x in axes.get_xticks()])
        axes.set_ylabel("error, %")
        axes.set_xlabel("runs, oldest first")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))

    return _draw("trend over runs", [draw])
