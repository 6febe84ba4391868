"""Play the cells that are not known yet, a few at a time, and keep each as soon as it is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from artifacts.errors import HetrlError
from flows.replay.cells import Cell
from flows.replay.play import Player
from flows.replay.results import Result, Results


@dataclass(frozen=True)
class Step:
    """A cell that ended: ``done`` of ``total``, and what is left. ``left_s`` None: nothing was played yet to judge by."""

    cell: Cell
    result: Result
    known: bool
    done: int
    total: int
    left_s: float | None


def replay(cells: Sequence[Cell], *, results: Results, player: Player, parallel: int, tell: Callable[[Step], None]) -> dict[Cell, Result]:
    """The result of every cell. A failure ends the replay; what was found stays kept.

    Raises:
        HetrlError: the first failure of a stage, with the cell's name.
        KeyboardInterrupt: stopped; the stages that ran are ended.
    """
    keys = {cell: player.key(cell) for cell in dict.fromkeys(cells)}
    found: dict[Cell, Result] = {}
    for cell, key in keys.items():
        if key in results.known:
            found[cell] = results.known[key]
            tell(Step(cell, found[cell], True, len(found), len(keys), None))
    waiting = [cell for cell in keys if cell not in found]
    started, played = time.monotonic(), 0.0
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        try:
            under_way: dict[Future[Result], Cell] = {}
            while waiting or under_way:
                while waiting and len(under_way) < parallel:
                    cell = waiting.pop(0)
                    under_way[pool.submit(player.play, cell)] = cell
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ended:
                    cell = under_way.pop(future)
                    found[cell] = _result(future, cell)
                    results.add(found[cell])
                    played += cell.weight
                    left = sum(c.weight for c in (*waiting, *under_way.values()))
                    tell(Step(cell, found[cell], False, len(found), len(keys), left * (time.monotonic() - started) / played))
        except BaseException:
            player.stop()
            raise
    return {cell: found[cell] for cell in keys}


def _result(future: Future[Result], cell: Cell) -> Result:
    try:
        return future.result()
    except HetrlError as error:
        raise type(error)(f"{cell}: {error.message}", fix=error.fix, details=error.details) from None
