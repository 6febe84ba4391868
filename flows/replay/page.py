"""The page: what was replayed, a section an experiment, between two marks of a file whose other text is left as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from artifacts.errors import InputError
from artifacts.views.svg import Svg
from flows.replay import pictures, tables
from flows.replay.compare import Found
from flows.replay.experiments import Replay

BEGIN, END = "<!-- replay: begin -->", "<!-- replay: end -->"
HEAD = f"# The published experiments, replayed\n\n{BEGIN}\n{END}\n"
SECTIONS: dict[str, tuple[str, Callable[[Replay, Found], str]]] = {
    "end-to-end": ("End to end", tables.end_to_end_table),
    "combinations": ("Combinations of GPUs", tables.combinations_table),
    "load-balancing": ("Load balancing", tables.load_balancing_table),
    "search": ("Search efficiency", tables.search_table),
    "exact": ("Against the exact optimum", tables.exact_table),
    "cost-model": ("Cost model against simulator", tables.cost_model_table),
    "batch": ("The size of the batch", tables.batch_table),
}
PICTURES: dict[str, tuple[str, str, Callable[[Replay, Found], Svg | None]]] = {
    "end-to-end": ("replay-ratios.svg", "HetRL's throughput over the baseline's", pictures.ratios_picture),
    "search": ("replay-search.svg", "Best plan over processor time", pictures.search_picture),
    "cost-model": ("replay-cost-model.svg", "Predicted against simulated", pictures.agreement_picture),
}


def generated(replay: Replay, found: Found, *, picture_folder: str) -> str:
    """The part between the marks. ``picture_folder``: as seen from the page; empty: beside it."""
    how, total = "quick" if replay.quick else "whole", len(replay.cells())
    parts = [f"Replayed: {', '.join(replay.experiments)} ({how}), {len(found)} of {total} cells."]
    for name in (n for n in SECTIONS if n in replay.experiments):
        title, make = SECTIONS[name]
        parts += [f"## {title}", make(replay, found)]
        if name in PICTURES and PICTURES[name][2](replay, found) is not None:
            parts.append(f"![{PICTURES[name][1]}]({os.path.join(picture_folder, PICTURES[name][0])})")
    parts += ["## The plans", tables.plans(found)]
    return "\n\n".join(parts) + "\n"


def write(replay: Replay, found: Found, *, page: Path, pictures_in: Path) -> list[Path]:
    """Write page and pictures; the paths. Raises ``InputError`` where a page has no marks or a folder cannot be written."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        pictures_in.mkdir(parents=True, exist_ok=True)
        written = [page]
        for name in (n for n in PICTURES if n in replay.experiments):
            file, _, make = PICTURES[name]
            svg = make(replay, found)
            if svg is not None:
                (pictures_in / file).write_text(svg.standalone(), encoding="utf-8")
                written.append(pictures_in / file)
        text = page.read_text(encoding="utf-8") if page.exists() else HEAD
        seen_from_page = os.path.relpath(pictures_in, page.parent)
        made = generated(replay, found, picture_folder="" if seen_from_page == "." else seen_from_page)
        page.write_text(between_marks(text, made, where=str(page)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {error.filename or page}: {error.strerror}", fix="choose files you may write") from None
    return written


def between_marks(text: str, made: str, *, where: str) -> str:
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(f"{where} is no page of a replay: it lacks the marks {BEGIN} and {END}", fix="name a new file")
    return f"{text.split(BEGIN)[0]}{BEGIN}\n{made}{END}{text.split(END)[1]}"
