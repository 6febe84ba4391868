"""Words for people: task names, counts, percentages, and strings of unknown origin made harmless."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

TASK_TITLES = {
    "rollout": "rollout",
    "reward_inference": "reward inference",
    "reference_inference": "reference inference",
    "critic_inference": "critic inference",
    "actor_training": "actor training",
    "critic_training": "critic training",
}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~])")


def clean(value: object, *, limit: int = 300) -> str:
    """One printable line: control characters (terminal escapes, text direction, line breaks) become a space, long text is cut."""
    text = _CONTROL.sub(" ", str(value)).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def markdown(value: object) -> str:
    """Text that Markdown shows as it is: neither markup, nor a table's border, nor HTML, nor a link."""
    text = clean(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", text).replace("://", "&#58;//")


def task_title(task: str) -> str:
    return TASK_TITLES.get(task) or clean(task).replace("_", " ")


def plural(count: int, noun: str) -> str:
    """``1 device``, ``1,024 devices``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


def percent(ratio: float, *, signed: bool = False) -> str:
    """A ratio as a percentage; one that is beyond reading as a percentage becomes a multiple."""
    if abs(ratio) >= 10:
        return f"{ratio + 1:,.0f}×" if signed else f"{ratio:,.0f}×"
    digits = 0 if abs(ratio) >= 0.095 else 1
    return f"{ratio * 100:{'+' if signed else ''}.{digits}f} %".replace("-", "−")


def number(value: float) -> str:
    """Up to three significant digits, readable at any size."""
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}".replace("-", "−")
    text = f"{value:,.{max(0, 2 - int(f'{abs(value):e}'.split('e')[1]))}f}".replace("-", "−")
    return text.rstrip("0").rstrip(".") if "." in text else text


def tally(names: Iterable[str]) -> str:
    """``24 × A100, 8 × L4``, the most frequent first."""
    counts = Counter(names)
    return ", ".join(f"{n:,} × {clean(name)}" for name, n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])))


def shares(values: Sequence[int]) -> str:
    """How a total is dealt out: ``4 × 96``, or ``16–32, 8 shares`` when uneven and many."""
    if len(set(values)) == 1:
        return f"{len(values)} × {values[0]}" if len(values) > 1 else str(values[0])
    if len(values) <= 8:
        return ", ".join(map(str, values))
    return f"{min(values)}–{max(values)}, {len(values)} shares"


def listing(names: Sequence[str], *, limit: int = 4) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(clean(n) for n in names[:limit])
    return shown + (f" and {len(names) - limit:,} more" if len(names) > limit else "")
