"""The prediction of a plan as a document: times, memory, bound, where the numbers came from, and which of them matter most."""

from __future__ import annotations

from typing import Literal

from artifacts.plan import Plan
from artifacts.prediction import DeviceMemory, Prediction, TaskTime
from artifacts.topology import Provenance
from stages.schedule.cost.bounds import roofline_s
from stages.schedule.cost.compute import equivalent_width
from stages.schedule.cost.iteration import PlanPrice, TaskPrice
from stages.schedule.cost.paper import paper_price
from stages.schedule.cost.sensitivity import sensitivities
from stages.schedule.problem import ACTOR_LOG_PROB, WEIGHT_UPDATE, Problem
from stages.schedule.search.space import TASK_ORDER

Fidelity = Literal["calibrated", "paper"]


def prediction_document(
    problem: Problem, plan: Plan, price: PlanPrice, *, fidelity: Fidelity = "calibrated", calibration: str = ""
) -> Prediction:
    """A plan's prediction. The memory is the same in both fidelities: the published text gives no formulas of its own for it."""
    if fidelity == "paper":
        paper = paper_price(problem, price.groups)
        return _document(
            problem,
            plan,
            price,
            fidelity,
            iteration_s=paper.iteration_s,
            tasks=paper.tasks,
            other={},
            provenance=_paper_provenance(problem),
        )
    tasks = {name: p for g in price.groups for name, p in g.prices.items() if name != ACTOR_LOG_PROB}
    other = {
        ACTOR_LOG_PROB: sum(g.prices[ACTOR_LOG_PROB].time_s for g in price.groups if ACTOR_LOG_PROB in g.prices),
        WEIGHT_UPDATE: price.weight_update_s,
    }
    if price.overhead_s:
        other["overhead"] = price.overhead_s
    found = _document(
        problem, plan, price, fidelity, iteration_s=price.iteration_s, tasks=tasks, other=other, provenance=_provenance(problem, price)
    )
    paper = paper_price(problem, price.groups)
    published = {"iteration": paper.iteration_s, **{name: p.time_s for name, p in paper.tasks.items()}}
    return found.model_copy(update={"calibration": calibration, "sensitivity": sensitivities(problem, price), "paper_s": published})


def _document(
    problem: Problem,
    plan: Plan,
    price: PlanPrice,
    fidelity: Fidelity,
    *,
    iteration_s: float,
    tasks: dict[str, TaskPrice],
    other: dict[str, float],
    provenance: dict[str, Provenance],
) -> Prediction:
    starts = _starts(problem, price, {name: p.time_s for name, p in tasks.items()} | {ACTOR_LOG_PROB: other.get(ACTOR_LOG_PROB, 0.0)})
    return Prediction(
        plan=plan.identity(),
        fidelity=fidelity,
        iteration_time_s=iteration_s,
        throughput_samples_per_s=problem.work.sequences / iteration_s,
        tasks={name: TaskTime(time_s=p.time_s, start_s=starts[name], terms=p.terms) for name, p in tasks.items()},  # type: ignore[misc]
        other_s=other,
        memory=_memory(problem, price),
        bound_s=roofline_s(problem) if fidelity == "calibrated" else 0.0,
        provenance=provenance,
    )


def _starts(problem: Problem, price: PlanPrice, seconds: dict[str, float]) -> dict[str, float]:
    """When each task starts: phases in order, tasks of a group one after the other."""
    phase = {name: "training" if name.endswith("_training") else "inference" for name in seconds if name != "rollout"}
    groups = [[n for n in (ACTOR_LOG_PROB, *TASK_ORDER) if n in phase and n in g.prices] for g in price.groups]
    after_rollout = 0.0 if problem.job.mode == "async" else seconds["rollout"]
    training_at = after_rollout + max(sum(seconds[n] for n in names if phase[n] == "inference") for names in groups)
    starts = {"rollout": 0.0}
    for names in groups:
        clock = {"inference": after_rollout, "training": training_at}
        for name in names:
            starts[name] = clock[phase[name]]
            clock[phase[name]] += seconds[name]
    return starts


def _paper_provenance(problem: Problem) -> dict[str, Provenance]:
    fleet = problem.fleet
    found: dict[str, Provenance] = {
        f"compute.{d.device_class}": "spec" if d.peak_flops_per_s else d.achieved_flops_per_s.provenance for d in fleet.devices
    }
    return found | {"links": fleet.link_provenance, "memory_overheads": "assumed"}


def _memory(problem: Problem, price: PlanPrice) -> dict[str, DeviceMemory]:
    found = {}
    for group in price.groups:
        for slot, device in enumerate(group.memory.devices):
            found[problem.fleet.devices[device].id] = DeviceMemory(
                capacity_bytes=int(problem.fleet.memory_bytes[device]),
                usable_bytes=int(problem.usable_bytes[device]),
                resident={k: int(v[slot]) for k, v in group.memory.resident.items() if v[slot] > 0},
                working={k: int(v[slot]) for k, v in group.memory.working.items() if v[slot] > 0},
            )
    return found


def _provenance(problem: Problem, price: PlanPrice) -> dict[str, Provenance]:
    """Where the numbers came from; a size outside what was measured makes the rate an assumption, said by name."""
    fleet = problem.fleet
    used = {int(c) for g in price.groups for c in fleet.device_class[g.memory.devices]}
    found: dict[str, Provenance] = {f"compute.{fleet.classes[c]}": fleet.rate_provenance[c] for c in used}
    for group in price.groups:
        for name, layout in group.layouts.items():
            width = equivalent_width(hidden=problem.task(name).model.hidden, tp=layout.tp)
            for replica, micro in enumerate(layout.micro):
                tokens = micro * (1.0 if name == "rollout" else problem.work.sequence_tokens)
                for c in set(fleet.device_class[layout.ranks[replica].ravel()].tolist()):
                    if not fleet.curves[c].covers(tokens=tokens, width=width):
                        found[f"compute.{fleet.classes[c]}.outside_measured_sizes"] = "assumed"
    found["links"] = fleet.link_provenance
    response = problem.job.response_tokens
    found["response_lengths"] = "spec" if response.mean >= response.max else "measured" if response.quantiles else "assumed"
    found["memory_overheads"] = found["host_times"] = "assumed"
    if problem.calibration:
        found["calibration"] = "calibrated"
    return found
