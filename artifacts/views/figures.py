"""Headline figures of a plan and of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.throughput import Iteration, Throughput
from artifacts.topology import Topology
from artifacts.units import show_bytes, show_seconds
from artifacts.validation import Validation
from artifacts.views.memory import fullest
from artifacts.views.text import clean, number, percent, plural


@dataclass(frozen=True)
class Figure:
    """A headline figure: what, how much, and a line of context. ``tone``: plain, good, bad."""

    label: str
    value: str
    note: str = ""
    tone: str = "plain"


def plan_figures(topology: Topology, plan: Plan, prediction: Prediction, search: Search | None) -> list[Figure]:
    used = sum(len(g.devices) for g in plan.groups)
    idle = len(topology.devices) - used
    bound = max(prediction.bound_s, prediction.proved_bound_s or 0.0)
    figures = [
        Figure("Predicted iteration", show_seconds(prediction.iteration_time_s), f"{prediction.fidelity} cost model"),
        Figure("Predicted throughput", f"{number(prediction.throughput_samples_per_s)} samples/s"),
        Figure("Devices in use", f"{used:,} of {len(topology.devices):,}", f"{plural(idle, 'device')} idle" if idle else "none idle"),
    ]
    if bound > 0:
        kind = "proved bound" if (prediction.proved_bound_s or 0.0) >= prediction.bound_s else "roofline"
        figures.append(Figure("Above the bound", percent(prediction.gap), f"{kind}: {show_seconds(bound)}"))
    moves = search.moves if search else None
    if moves is not None:
        note = f"{show_bytes(moves.fetch_bytes)} to fetch" if moves.fetch_bytes else "nothing to fetch"
        if moves.horizon_iterations is not None and moves.fastest_s is not None and moves.fastest_s < prediction.iteration_time_s:
            note += f"; the fastest plan: {show_seconds(moves.fastest_s)}, {moves.fastest_moved} moved"
        figures.append(Figure("Moved from the plan in force", f"{moves.moved:,} of {plural(moves.tasklets, 'tasklet')}", note))
    full = fullest(prediction)
    if full:
        figures.append(Figure("Fullest device", percent(full[1]), f"{full[0]}, of its memory"))
    if search:
        figures.append(
            Figure(
                "Search", f"{search.evaluations:,} plans", f"{show_seconds(search.seconds)}, {clean(search.solver)}: {clean(search.status)}"
            )
        )
    return figures


def run_figures(throughput: Throughput, validation: Validation) -> list[Figure]:
    whole, steps = validation.iteration, throughput.iterations
    good = validation.verdict == "ok"
    figures = [
        Figure(
            "Prediction",
            "holds" if good else "is off",
            f"error {percent(whole.error, signed=True)}, bound ±{percent(validation.bound)}",
            "good" if good else "bad",
        ),
        Figure(
            "Measured iteration",
            show_seconds(whole.measured_s),
            f"predicted {show_seconds(whole.predicted_s)}; median of {whole.iterations}",
        ),
    ]
    if steps:
        samples, tokens = (sum(x) / len(steps) for x in ([s.samples_per_s for s in steps], [s.tokens_per_s for s in steps]))
        figures.append(
            Figure(
                "Measured throughput",
                f"{number(samples)} samples/s",
                f"{number(tokens)} tokens/s, mean over {plural(len(steps), 'iteration')}",
            )
        )
    for label, attribute in (("Reward", "reward_mean"), ("Loss", "loss")):
        ends = first_and_last(steps, attribute)
        if ends:
            figures.append(Figure(f"{label}, first → last", f"{number(ends[0])} → {number(ends[1])}"))
    return figures


def first_and_last(steps: Sequence[Iteration], attribute: str) -> tuple[float, float] | None:
    """First and last reported value; None when it was never reported."""
    values = [v for v in (getattr(s, attribute) for s in steps) if v is not None]
    return (values[0], values[-1]) if values else None
