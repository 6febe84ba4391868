"""The number a row prints, predicted by the cost model."""

from __future__ import annotations

from dataclasses import dataclass, field

from stages.schedule.cost.iteration import PlanPrice
from stages.schedule.cost.paper import paper_price
from stages.schedule.documents import price_plan
from tests.benchmarks.published.rows import Row
from tests.benchmarks.published.scenario import Scenario, build_scenario
from tests.benchmarks.published.selection import kind_of
from tests.benchmarks.published.terms import extra_terms

TASKS = {
    "iteration": "actor_training",
    "old_log_prob": "actor_log_prob",
    "ref_log_prob": "reference_inference",
    "values": "critic_inference",
    "update_critic": "critic_training",
    "update_actor": "actor_training",
}


@dataclass(frozen=True)
class Predicted:
    """Seconds by task, as the kernel prices them and by the published model; the whole iteration; terms of the row's own task."""

    seconds: float
    paper: float
    terms: dict[str, float] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)


def predict(row: Row) -> Predicted:
    """Seconds that the row's quantity takes."""
    scenario = build_scenario(row)
    price = price_plan(scenario.problem, scenario.plan)
    assert price is not None, f"row {row.number}: the plan has no price"
    seconds, terms = _seconds(scenario, price)
    return Predicted(seconds=seconds, paper=_paper(scenario, price), terms=terms, extra=_extra(scenario, price))


def _seconds(scenario: Scenario, price: PlanPrice) -> tuple[float, dict[str, float]]:
    prices = {name: p for group in price.groups for name, p in group.prices.items()}
    phase = scenario.row.phase
    if phase in ("gen", "generation_throughput"):
        terms = prices["rollout"].terms | ({"weight update": price.weight_update_s} if phase == "gen" else {})
    elif phase == "first_token_latency":
        terms = {"prefill": prices["rollout"].terms["prefill"]}
    elif phase in TASKS:
        terms = prices[TASKS[phase]].terms
    else:
        terms = {name: p.time_s for name, p in prices.items()} | {"weight update": price.weight_update_s}
        return price.iteration_s, terms
    return sum(terms.values()), terms


def _paper(scenario: Scenario, price: PlanPrice) -> float:
    paper = paper_price(scenario.problem, price.groups)
    phase = scenario.row.phase
    if phase in ("gen", "generation_throughput", "first_token_latency"):
        terms = paper.tasks["rollout"].terms
        return terms["compute"] if phase == "first_token_latency" else sum(terms.values())
    if phase == "old_log_prob":
        return paper.tasks["reference_inference"].time_s
    return paper.tasks[TASKS[phase]].time_s if phase in TASKS else paper.iteration_s


def printed(row: Row, seconds: float, scenario: Scenario | None = None) -> float:
    """``seconds`` in the row's own unit."""
    if row.unit == "ms":
        return seconds * 1e3
    if row.phase == "generation_throughput":
        assert row.prompts and row.response_len and row.n_gpus
        return row.prompts * row.response_len / seconds / row.n_gpus
    if row.phase == "step_throughput":
        work = (scenario or build_scenario(row)).problem.work
        assert row.n_gpus
        return work.sequences * work.sequence_tokens / seconds / row.n_gpus
    return seconds


__all__ = ["Predicted", "kind_of", "predict", "printed"]


def _extra(scenario: Scenario, price: PlanPrice) -> dict[str, float]:
    phase = scenario.row.phase
    if phase in ("gen", "generation_throughput"):
        return extra_terms(scenario, "rollout")
    if phase == "first_token_latency":
        return {}
    if phase in TASKS:
        return extra_terms(scenario, TASKS[phase])
    found = {}
    for g in price.groups:
        for name in g.prices:
            for k, v in extra_terms(scenario, name).items():
                found[f"{name}.{k}"] = v
    return found
