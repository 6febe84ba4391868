"""A very small SVG writer: shapes with tooltips, every string escaped, coordinates rounded so that output is deterministic."""

from __future__ import annotations

from html import escape

from markupsafe import Markup

from artifacts.views.palette import INK
from artifacts.views.text import clean

FONT = 12.0
_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#f5f7fa"/><line x1="0" y1="0" x2="0" y2="6" stroke="#cbd2d9" stroke-width="2"/></pattern></defs>'
)
_WIDE, _NARROW = set("mwMW@%—"), set("iljtf.,:;|!'()[] 1")


def text_width(text: str, size: float = FONT, *, bold: bool = False) -> float:
    """Estimated width in pixels of sans-serif text: enough to decide whether a label fits."""
    return (
        size * (1.14 if bold else 1.0) * sum(0.88 if c in _WIDE else 0.36 if c in _NARROW else 0.62 if c.isupper() else 0.56 for c in text)
    )


def fit(text: str, width: float, size: float = FONT, *, bold: bool = False) -> str:
    """``text``, cut with an ellipsis to fit ``width`` pixels; empty when not even three characters do."""
    if text_width(text, size, bold=bold) <= width:
        return text
    for end in range(len(text) - 1, 1, -1):
        short = text[:end].rstrip() + "…"
        if text_width(short, size, bold=bold) <= width:
            return short
    return ""


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Svg:
    """Shapes in drawing order. All coordinates in pixels, origin top left."""

    def __init__(self, width: float, height: float, *, label: str) -> None:
        self.width, self.height = width, height
        self._label = label
        self._parts: list[str] = []
        self._hatched = False

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        stroke: str = "none",
        opacity: float = 1.0,
        radius: float = 0.0,
        dashed: bool = False,
        title: str = "",
    ) -> None:
        extra = f' rx="{_n(radius)}"' if radius else ""
        extra += f' fill-opacity="{_n(opacity)}"' if opacity < 1 else ""
        extra += f' stroke="{stroke}"' if stroke != "none" else ""
        extra += ' stroke-dasharray="4 3"' if dashed else ""
        self._shape(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(max(height, 0))}" fill="{fill}"{extra}', "rect", title
        )

    def hatch(self, x: float, y: float, width: float, height: float, *, title: str = "") -> None:
        """A rectangle with diagonal lines: nothing runs here."""
        self._hatched = True
        self.rect(x, y, width, height, fill="url(#hatch)", stroke="#9aa5b1", radius=2, title=title)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, stroke: str, width: float = 1.0, dashed: bool = False, title: str = ""
    ) -> None:
        extra = ' stroke-dasharray="4 3"' if dashed else ""
        self._shape(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" stroke="{stroke}" stroke-width="{_n(width)}"{extra}',
            "line",
            title,
        )

    def text(
        self, x: float, y: float, text: str, *, size: float = FONT, fill: str = INK, anchor: str = "start", bold: bool = False
    ) -> None:
        extra = f' text-anchor="{anchor}"' if anchor != "start" else ""
        extra += ' font-weight="600"' if bold else ""
        if text:
            self._parts.append(f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" fill="{fill}"{extra}>{escape(clean(text))}</text>')

    def _shape(self, opening: str, tag: str, title: str) -> None:
        self._parts.append(f"{opening}><title>{escape(clean(title, limit=600))}</title></{tag}>" if title else f"{opening}/>")

    def markup(self) -> Markup:
        """The picture as an inline SVG element; it shrinks with the page and never grows beyond its size."""
        defs = _HATCH if self._hatched else ""
        return Markup(
            f'<svg role="img" aria-label="{escape(self._label)}" viewBox="0 0 {_n(self.width)} {_n(self.height)}" '
            f'style="width:100%;max-width:{_n(self.width)}px;height:auto">{defs}{"".join(self._parts)}</svg>'
        )

    def standalone(self) -> str:
        """The same as a file of its own."""
        return str(self.markup()).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1) + "\n"


def nice_ticks(top: float, count: int = 6) -> list[float]:
    """Round values from 0 up to ``top``: steps of 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return [0.0]
    step = 10.0 ** int(f"{top / count:e}".split("e")[1])
    step *= next((m for m in (1, 2, 5, 10) if top / (step * m) <= count), 10)
    return [round(i * step, 12) for i in range(int(top / step + 1e-9) + 1)]


def time_ticks(top_s: float, count: int = 6) -> list[tuple[float, str]]:
    """Ticks of a time axis that ends at ``top_s``: (seconds, label), round in the one unit that suits the axis."""
    units = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"))
    size, unit = next((size, unit) for least, size, unit in units if top_s >= least)
    return [(tick * size, f"{tick:g} {unit}") for tick in nice_ticks(top_s / size, count)]
