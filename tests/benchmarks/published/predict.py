"""The number a row prints, predicted: by ``price_plan``, and by the published model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.cost.paper import paper_price
from stages.schedule.documents import price_plan
from tests.benchmarks.published.operators import ALL_REDUCES_OF_A_LAYER, NO_CONTEXT
from tests.benchmarks.published.rows import Row
from tests.benchmarks.published.scenario import Scenario, build_scenario, one_step_off
from tests.benchmarks.published.selection import kind_of

TASKS = {
    "iteration": "actor_training",
    "gen": "rollout",
    "old_log_prob": "actor_log_prob",
    "ref_log_prob": "reference_inference",
    "values": "critic_inference",
    "update_critic": "critic_training",
    "update_actor": "actor_training",
    "generation_throughput": "rollout",
}
"""Phase of a row → the task it times. verl's gen has the weight update in it."""

Terms = dict[str, float]


@dataclass(frozen=True)
class Prediction:
    """Numbers in the row's own unit; ``paper`` None where the published model has no such quantity."""

    row: Row
    model: float
    paper: float | None

    def error(self, predicted: float) -> float:
        """Relative to the measured number."""
        return predicted / self.row.value - 1.0

    @property
    def slowdown(self) -> float:
        """Measured time over predicted: what a factor is fitted to."""
        return self.model / self.row.value if is_rate(self.row) else self.row.value / self.model

    def calibrated(self, factor: float) -> float:
        """``model`` with every predicted time multiplied by ``factor``."""
        return self.model / factor if is_rate(self.row) else self.model * factor


@cache
def predict(row: Row) -> Prediction:
    """The prediction of a scored row."""
    scenario = build_scenario(row)
    price = _price(scenario)
    model = _seconds(scenario, price)
    if kind_of(row)[1] == "decode attention":
        empty = build_scenario(row, context=NO_CONTEXT)
        model -= _seconds(empty, _price(empty))
    paper = _paper_seconds(scenario, price)
    return Prediction(
        row=row,
        model=_printed(scenario, model),
        paper=_printed(scenario, paper) if paper else None,
    )


def is_rate(row: Row) -> bool:
    return "tokens/s" in row.unit


def _price(scenario: Scenario) -> PlanPrice:
    price = price_plan(scenario.problem, scenario.plan)
    assert price is not None, f"row {scenario.row.number}: the plan cannot be priced"
    return price


def _seconds(scenario: Scenario, price: PlanPrice) -> float:
    row, phase = scenario.row, scenario.row.phase

    def terms(task: str) -> Terms:
        return next(group.prices[task] for group in price.groups if task in group.prices).terms

    if kind_of(row)[1] == "all-reduce":
        return terms("reference_inference")["tp"] / ALL_REDUCES_OF_A_LAYER
    if kind_of(row)[1] == "decode attention":
        return sum(seconds for name, seconds in terms("rollout").items() if name in ("decode", "tail"))
    if phase == "first_token_latency":
        return terms("rollout")["prefill"]
    if phase in TASKS:
        return sum(terms(TASKS[phase]).values()) + (price.weight_update_s if phase == "gen" else 0.0)
    tasks = {name: sum(terms(name).values()) for group in price.groups for name in group.prices}
    rollout, rest = tasks["rollout"], sum(seconds for name, seconds in tasks.items() if name != "rollout")
    return (max(rollout, rest) if one_step_off(row) else rollout + rest) + price.weight_update_s


def _paper_seconds(scenario: Scenario, price: PlanPrice) -> float | None:
    row, phase = scenario.row, scenario.row.phase
    if kind_of(row)[0] == "operator":
        return None
    paper = paper_price(scenario.problem, price.groups)
    if phase == "first_token_latency":
        return paper.tasks["rollout"].terms["compute"]
    if phase == "old_log_prob":
        return paper.tasks["reference_inference"].time_s
    return paper.tasks[TASKS[phase]].time_s if phase in TASKS else paper.iteration_s


def _printed(scenario: Scenario, seconds: float) -> float:
    """``seconds`` in the row's own unit."""
    row, work = scenario.row, scenario.problem.work
    if row.unit == "ms":
        return seconds * 1e3
    if not is_rate(row):
        return seconds
    assert row.n_gpus is not None
    tokens = work.response_mean if row.phase == "generation_throughput" else work.sequence_tokens
    return work.sequences * tokens / seconds / row.n_gpus
