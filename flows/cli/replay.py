"""``hetrl replay``: the published experiments on the simulator, side by side with the published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from artifacts.errors import InputError
from artifacts.units import show_seconds
from flows.cli.run import terminate_as_interrupt
from flows.cli.stages import JSON, console
from flows.launch import make_runner
from flows.replay import page as pages
from flows.replay.compare import Found, end_to_end
from flows.replay.drive import Step
from flows.replay.drive import replay as play_all
from flows.replay.experiments import Replay, chosen
from flows.replay.play import Player
from flows.replay.results import Results


def replay(quick: bool = typer.Option(False, "--quick", help="Some cells of every experiment: below ten minutes on two cores."),
           only: list[str] = typer.Option([], "--only", help="One experiment: end-to-end, load-balancing, search, exact, cost-model, "
                                          "combinations or batch. May be repeated."),
           out: Path = typer.Option(Path(".hetrl/replay"), "--out", help="Folder that keeps the results: a replay goes on from there."),
           page: Path = typer.Option(None, "--page", help="Markdown file for tables and pictures; else replay.md in --out."),
           pictures: Path = typer.Option(None, "--pictures", help="Folder for the pictures; else beside the page."),
           kept: bool = typer.Option(False, "--kept", help="Play nothing: the page from the cells that are known."),
           parallel: int = typer.Option(2, "--parallel", min=1, max=64, help="Cells at a time."), as_json: bool = JSON) -> None:
    """Replay the published experiments on the simulator, beside the published figures. Ctrl-C stops; the next call goes on from there.

    Example: hetrl replay --quick
    """
    wanted = chosen(only, quick=quick)
    results = Results(out / "results.jsonl")
    known: list[bool] = []

    def tell(step: Step) -> None:
        known.append(step.known)
        if not step.known:
            console.print(_line(step), markup=False)

    player = Player(make_runner("process"))
    cells = [cell for cell in wanted.cells() if not kept or player.key(cell) in results.known]
    if not cells:
        raise InputError(f"no cell of this replay is known in {results.path}", fix="leave --kept out")
    with terminate_as_interrupt():
        found = play_all(cells, results=results, player=player, parallel=parallel, tell=tell)
    target = page or out / "replay.md"
    written = pages.write(wanted, found, page=target, pictures_in=pictures or target.parent)
    console.print(f"{len(found)} cells, {sum(known)} of them known from before", markup=False)
    for path in written:
        console.print(f"  {path}", markup=False)
    if as_json:
        typer.echo(json.dumps({"cells": len(found), "played": len(found) - sum(known), "results": str(results.path), "page": str(target),
                               "ratios": _ratios(wanted, found)}))


def _line(step: Step) -> str:
    result = step.result
    value = result.simulated_s if result.simulated_s is not None else result.predicted_s
    says = result.why if value is None else f"{show_seconds(value)} an iteration"
    left = f", about {show_seconds(step.left_s)} left" if step.left_s else ""
    return f"{step.done}/{step.total} {step.cell}: {says}{left}"


def _ratios(wanted: Replay, found: Found) -> list[dict[str, Any]]:
    return [{"setting": r.setting, "job": str(r.workload), "baseline": r.baseline, "ratio": r.value,
             "published": [r.published.low, r.published.high] if r.published else None} for r in end_to_end(wanted, found)]
