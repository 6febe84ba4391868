"""The pictures of the page, as SVG files."""

from __future__ import annotations

import math
from collections import defaultdict

from artifacts.views.palette import FAINT, GRID, INK, MEASURED, MUTED, PREDICTED
from artifacts.views.svg import Svg, nice_ticks
from flows.replay.cells import Cell
from flows.replay.compare import Found, end_to_end
from flows.replay.experiments import SEARCHED, Replay
from flows.replay.published import Range

WIDTH, ROW, LEFT, TOP = 860, 26, 250, 40
COLOURS = dict(zip(SEARCHED, ("#0072b2", "#009e73", "#d55e00", "#999999"), strict=True))


def ratios_picture(replay: Replay, found: Found) -> Svg | None:
    """Published ranges as bars, a point a job of ours; None where there is nothing to compare."""
    rows: dict[str, tuple[Range | None, list[float]]] = {}
    for r in end_to_end(replay, found):
        if r.value is not None:
            rows.setdefault(f"{r.setting}, {r.workload.mode} / {r.baseline}", (r.published, []))[1].append(r.value)
    if not rows:
        return None
    top = max([v for _, values in rows.values() for v in values] + [p.high for p, _ in rows.values() if p])
    svg = Svg(WIDTH, TOP + ROW * len(rows) + 34, label="HetRL's throughput over the baseline's, published and here")
    scale = (WIDTH - LEFT - 30) / math.log(top * 1.05 / 0.8)

    def x(value: float) -> float:
        return LEFT + scale * math.log(max(value, 0.8) / 0.8)

    svg.rect(LEFT, 10, 24, 10, fill=FAINT)
    svg.text(LEFT + 30, 19, "published range", fill=MUTED)
    svg.rect(LEFT + 150, 10, 10, 10, fill=PREDICTED, radius=5)
    svg.text(LEFT + 166, 19, "here, a job each", fill=MUTED)
    for tick in (t for t in (1, 1.5, 2, 3, 4, 6, 8, 10, 15, 20, 30, 50) if t <= top * 1.05):
        svg.line(x(tick), TOP - 6, x(tick), TOP + ROW * len(rows), stroke=INK if tick == 1 else GRID)
        svg.text(x(tick), TOP + ROW * len(rows) + 16, f"{tick:g}×", fill=MUTED, anchor="middle")
    for number, (name, (published, values)) in enumerate(rows.items()):
        y = TOP + ROW * number
        svg.text(LEFT - 10, y + 15, name, anchor="end")
        if published:
            svg.rect(x(published.low), y + 6, x(published.high) - x(published.low), 10, fill=FAINT, title=f"published {published}")
        for value in values:
            svg.rect(x(value) - 5, y + 6, 10, 10, fill=PREDICTED, radius=5, opacity=0.8, title=f"{value:.2f}")
    return svg


def search_picture(replay: Replay, found: Found) -> Svg | None:
    """Best predicted plan over processor time, by solver, a panel a setting; None without searches."""
    here: dict[str, list[Cell]] = defaultdict(list)
    for cell in replay.search():
        if cell in found and found[cell].trajectory and found[cell].cpu_s:
            here[cell.fleet].append(cell)
    if not here:
        return None
    height = 220
    svg = Svg(WIDTH, 30 + height * len(here), label="best plan over processor seconds of search")
    for number, solver in enumerate(SEARCHED):
        svg.rect(70 + 130 * number, 8, 16, 4, fill=COLOURS[solver])
        svg.text(92 + 130 * number, 15, solver, fill=MUTED)
    for number, (setting, cells) in enumerate(here.items()):
        _panel(svg, found, cells, setting, top=36 + height * number, height=height - 60)
    return svg


def _panel(svg: Svg, found: Found, cells: list[Cell], setting: str, *, top: float, height: float) -> None:
    left, width = 70, WIDTH - 90
    last = max(found[c].cpu_s for c in cells)
    first = min(found[c].cpu_s * found[c].trajectory[0][0] / found[c].evaluations for c in cells)
    start = min(max(first, last / 1000), last / 2)
    ends = [cost for c in cells for _, cost in found[c].trajectory[-1:]]
    most = min(4 * max(ends), max(cost for c in cells for _, cost in found[c].trajectory))

    def x(at: float) -> float:
        return left + width * math.log(max(at, start) / start) / math.log(last / start)

    def y(cost: float) -> float:
        return top + height - height * min(cost, most) / most

    svg.text(left, top - 4, f"{setting}: best plan, s", bold=True)
    for tick in nice_ticks(most, 4):
        svg.line(left, y(tick), left + width, y(tick), stroke=GRID)
        svg.text(left - 6, y(tick) + 4, f"{tick:g}", fill=MUTED, anchor="end")
    for tick in (0.01, 0.1, 1.0, 10.0, 100.0):
        if start <= tick <= last:
            svg.text(x(tick), top + height + 16, f"{tick:g} CPU s", fill=MUTED, anchor="middle")
    for cell in cells:
        result = found[cell]
        pace = result.cpu_s / result.evaluations
        points = [(evaluations * pace, cost) for evaluations, cost in result.trajectory]
        for (at, cost), (until, better) in zip(points, [*points[1:], (result.cpu_s, points[-1][1])], strict=True):
            svg.line(x(at), y(cost), x(until), y(cost), stroke=COLOURS[cell.solver], width=2, title=f"{cell.solver}: {cost:,.0f} s")
            svg.line(x(until), y(cost), x(until), y(better), stroke=COLOURS[cell.solver], width=2)


def agreement_picture(replay: Replay, found: Found) -> Svg | None:
    """Predicted against simulated seconds of every played plan, both axes in logarithms; None without plans."""
    points = [(r.predicted_s, r.simulated_s, c) for c, r in found.items() if r.predicted_s and r.simulated_s]
    if not points:
        return None
    low, high = min(min(p, s) for p, s, _ in points) / 1.2, max(max(p, s) for p, s, _ in points) * 1.2
    size, left, top = 360, 70, 20
    svg = Svg(left + size + 220, top + size + 44, label="predicted against simulated seconds of an iteration")

    def at(value: float) -> float:
        return size * math.log(value / low) / math.log(high / low)

    for tick in (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0, 30000.0):
        if low <= tick <= high:
            svg.line(left + at(tick), top, left + at(tick), top + size, stroke=GRID)
            svg.line(left, top + size - at(tick), left + size, top + size - at(tick), stroke=GRID)
            svg.text(left + at(tick), top + size + 16, f"{tick:,.0f}", fill=MUTED, anchor="middle")
            svg.text(left - 6, top + size - at(tick) + 4, f"{tick:,.0f}", fill=MUTED, anchor="end")
    svg.line(left, top + size, left + size, top, stroke=INK)
    svg.text(left + size / 2, top + size + 36, "simulated, s", fill=MUTED, anchor="middle")
    svg.text(left, top - 6, "predicted, s", fill=MUTED)
    for predicted, simulated, cell in points:
        fill = PREDICTED if cell.solver == "auto" else MEASURED
        svg.rect(left + at(simulated) - 4, top + size - at(predicted) - 4, 8, 8, fill=fill, radius=4, opacity=0.7,
                 title=f"{cell}: {predicted:,.0f} s predicted, {simulated:,.0f} s simulated")
    for number, (name, fill) in enumerate((("HetRL", PREDICTED), ("baselines", MEASURED))):
        svg.rect(left + size + 20, top + 20 * number, 8, 8, fill=fill, radius=4)
        svg.text(left + size + 36, top + 9 + 20 * number, name, fill=MUTED)
    return svg
