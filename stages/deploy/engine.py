"""The engine's configuration as the plan fixes it, flat: what a person compares, and what train holds its own against."""

from __future__ import annotations

from itertools import groupby

from artifacts.catalog.engines import resolve_engine
from artifacts.job import Job
from artifacts.plan import Plan, Strategy, pipeline_layout
from artifacts.topology import Topology

Value = str | int | float | bool


def engine_configuration(job: Job, topology: Topology, plan: Plan) -> dict[str, Value]:
    """``<task>.<setting>`` for every task, and what holds for the whole job; then the plan's own hints, as ``hint.<name>``."""
    used = {d for g in plan.groups for d in g.devices}
    capability = resolve_engine(job.engine, {d.vendor for d in topology.devices if d.id in used})
    found: dict[str, Value] = {
        "engine": job.engine.name, "rollout_server": capability.rollout_server, "mode": job.mode, "precision": job.precision,
        "offload": job.engine.offload, "recompute": job.engine.recompute, "algorithm": job.algorithm,
        "mini_batch_sequences": job.batch.mini_batch_sequences,
    }
    if job.mode == "async":
        found["staleness"] = job.staleness
    for task, strategy in plan.tasks.items():
        found |= {f"{task}.{key}": value for key, value in _task(strategy).items()}
        found[f"{task}.group"] = plan.group_of(task).name
    return found | {f"hint.{name}": value for name, value in plan.engine_hints.items()}


def _task(s: Strategy) -> dict[str, Value]:
    return {"dp": s.dp, "pp": s.pp, "tp": s.tp, "layers": pipeline_layout(s.layers), "micro_batch_sequences": s.micro_batch_sequences,
            "local_batch_sequences": ",".join(map(str, s.local_batch_sequences))}


def spans(ranks: list[str]) -> str:
    """Machines in rank order with runs folded, for a line a person reads: ``a×2, b``."""
    runs = [(name, len(list(same))) for name, same in groupby(ranks)]
    return ", ".join(name if count == 1 else f"{name}×{count}" for name, count in runs)
