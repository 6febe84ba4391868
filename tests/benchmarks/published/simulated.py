"""The simulator against published training iterations whose degrees are stated (vTrain, Sailor): ``python -m tests.benchmarks.published.simulated``.

Plays the plan of every scored row of that kind as the run was run, keeps the seconds in ``simulated.csv`` and writes the tables of
``infra/docs/simulator.md``; with ``--tables`` it only writes the tables again, from the figures kept.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from stages.train.engines.simulator.graph import Graph
from stages.train.engines.simulator.modeltasks import add_training
from stages.train.engines.simulator.setting import setting_of
from stages.train.engines.simulator.workload import sample
from tests.benchmarks.published.calibrate import cross_tests, group_of
from tests.benchmarks.published.predict import Prediction, predict
from tests.benchmarks.published.rows import Row
from tests.benchmarks.published.scenario import build_scenario
from tests.benchmarks.published.selection import kind_of, scored_rows, source_name

KEPT = Path(__file__).with_suffix(".csv")
PAGE = Path(__file__).parents[3] / "infra/docs/simulator.md"
BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"
BAR = 0.15
"""Largest median absolute error, with and without factors."""


def iteration_rows() -> list[Row]:
    """Scored rows that are a training iteration."""
    return [row for row in scored_rows() if kind_of(row)[0] == "training iteration"]


def simulate(row: Row) -> float:
    """Seconds of the row's iteration, played: forward and backward passes, gradients, update; the engine is what the run's was."""
    scenario = build_scenario(row)
    setting = replace(setting_of(scenario.job, scenario.problem.topology, scenario.plan), engine=scenario.problem.engine)
    task = setting.tasks["actor_training"]
    batch = sample(scenario.job, 0, shares=task.strategy.local_batch_sequences, padded=True)
    graph = Graph(setting.network.capacity)
    add_training(graph, setting, task, batch, number=0)
    return float(graph.play().end.max())


def read_kept() -> dict[int, float]:
    """Line of a row → seconds as played."""
    with KEPT.open(encoding="utf-8", newline="") as file:
        return {int(line["line"]): float(line["simulated_s"]) for line in csv.DictReader(file)}


def keep(seconds: dict[int, float]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["line", "simulated_s"])
    writer.writerows([number, f"{value:.6g}"] for number, value in seconds.items())
    KEPT.write_text(out.getvalue(), encoding="utf-8")


def played(seconds: dict[int, float]) -> list[Prediction]:
    """The played seconds in the place of the cost model's, so that the same factors are fitted and tested."""
    return [Prediction(row=row, model=seconds[row.number], paper=None) for row in iteration_rows()]


def errors(predictions: Iterable[Prediction]) -> list[float]:
    return [p.error(p.model) for p in predictions]


def factored_errors(predictions: Iterable[Prediction], half: int | None = None) -> list[float]:
    """With the factor of the row's GPU class, fitted on the half that the row is not in. ``half``: of one way round only."""
    return [t.error for t in cross_tests(predictions) if half in (None, t.half)]


def tables(seconds: dict[int, float]) -> str:
    """Markdown: by source and GPU class, and row by row."""
    return _summary(played(seconds)) + "\n\n" + _rows(played(seconds)) + "\n"


def _summary(predictions: Sequence[Prediction]) -> str:
    """All, and by GPU class of a source."""
    model = [predict(p.row) for p in predictions]
    out = ["| | rows | simulator | fitted on even | fitted on odd | both | cost model | both |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    groups = list(dict.fromkeys(group_of(p.row) for p in predictions))
    for group in [None, *groups]:
        mine = [p for p in predictions if group in (None, group_of(p.row))]
        theirs = [p for p in model if group in (None, group_of(p.row))]
        name = "**all**" if group is None else f"{group[0]}, {group[1]}"
        figures = [errors(mine), *(factored_errors(mine, half) for half in (0, 1)), factored_errors(mine), errors(theirs), factored_errors(theirs)]
        out.append(f"| {name} | {len(mine)} | {' | '.join(_median(f) for f in figures)} |")
    return "\n".join(out)


def _rows(predictions: Sequence[Prediction]) -> str:
    factored = {t.prediction.row.number: t.error for t in cross_tests(predictions)}
    out = ["| line | source | run, dp×pp×tp | measured, s | simulated, s | error | with the factor | cost model's error |", "|--:|---|---|--:|--:|--:|--:|--:|"]
    for p in predictions:
        model = predict(p.row)
        out.append(f"| {p.row.number} | {source_name(p.row)} | {p.row.text} | {p.row.value:.3g} | {p.model:.3g} | {_signed(p.error(p.model))} "
                   f"| {_signed(factored[p.row.number])} | {_signed(model.error(model.model))} |")
    return "\n".join(out)


def _median(found: Sequence[float]) -> str:
    return f"{median(map(abs, found)):.0%}" if found else "–"


def _signed(error: float) -> str:
    return f"{error:+.0%}".replace("-", "−")


def page_with(text: str, made: str) -> str:
    """The page with new tables between the marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{made}{END}{after}"


def main(arguments: Sequence[str]) -> None:
    if "--tables" not in arguments:
        seconds = {}
        for row in iteration_rows():
            seconds[row.number] = simulate(row)
            print(f"line {row.number}: {row.value:.3g} s measured, {seconds[row.number]:.3g} s simulated", file=sys.stderr)
        keep(seconds)
    made = tables(read_kept())
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main(sys.argv[1:])
