"""From a problem to the kernel's arrays, from layouts to its plan, and the scratch memory it works in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.job import ROLE_OF_TASK, Lengths
from artifacts.model_spec import ModelSpec
from stages.schedule.cost.compute import Curve, equivalent_width
from stages.schedule.cost.kernel.arrays import (
    DEVICE,
    INFERENCE,
    JOB,
    LINK,
    MACHINE,
    NODE,
    OVERFLOW,
    PACE,
    PAIR,
    POINT,
    ROLLOUT,
    ROW,
    SLOT,
    TASK,
    TERMS,
    TOTAL,
    TRAINING,
    WORKING,
    Flat,
    Ints,
    Ledger,
    Records,
    Tables,
)
from stages.schedule.cost.kernel.generation import DISTINCT
from stages.schedule.cost.lengths import mean_age, node_lengths, survival_at
from stages.schedule.cost.memory import RECOMPUTE
from stages.schedule.draft import Layout
from stages.schedule.fleet import UNUSABLE_S, Fleet
from stages.schedule.problem import ACTOR_LOG_PROB, WEIGHT_UPDATE, Problem, Task

Floats = NDArray[np.float64]

MOST_TP = 64


@dataclass(frozen=True)
class Compiled:
    """A problem as the kernel sees it, with one thread's outputs and a plan to write into."""

    tables: Tables
    ledger: Ledger
    flat: Flat


def compiled(problem: Problem) -> Compiled:
    """Made once a problem."""
    found = problem.compiled.get("one thread")
    if not isinstance(found, Compiled):
        tables = build_tables(problem)
        found = problem.compiled["one thread"] = Compiled(tables, build_ledger(tables), empty_flat(tables))
    return found


def build_tables(problem: Problem) -> Tables:
    """The kernel's view of a problem. Computed once a problem."""
    fleet, names = problem.fleet, [t.name for t in problem.tasks]
    hidden = sorted({t.model.hidden for t in problem.tasks})
    points, curve = _curves(fleet.curves, hidden)
    return Tables(
        dev=records(
            DEVICE,
            machine=fleet.machine,
            device_class=fleet.device_class,
            hbm=fleet.hbm_bytes_per_s,
            slow=host_slowness(problem)[fleet.device_class],
            best=np.array([c.best for c in fleet.curves])[fleet.device_class],
            usable=problem.usable_bytes,
            capacity=fleet.memory_bytes,
            host_rate=np.where(np.isnan(fleet.host_bytes_per_s), 1e-9, fleet.host_bytes_per_s),
            on_host=fleet.memory_is_host,
        ),
        net=records(LINK, latency=fleet.machine_latency_s, inverse=fleet.machine_inverse_bandwidth),
        box=records(MACHINE, memory=fleet.host_memory_bytes, sends=_port(fleet, axis=1), receives=_port(fleet, axis=0)),
        points=points,
        curve=curve,
        factor=np.array([problem.class_factors(row) for row in [*names, ACTOR_LOG_PROB, WEIGHT_UPDATE]]),
        task=_tasks(problem, hidden),
        node=_nodes(problem.job.response_tokens),
        job=_job(problem, names),
    )


def host_slowness(problem: Problem) -> Floats:
    """``[C]``: how much longer than stated the host's times are. A CPU device is its own host; a GPU's is apart, and counts as stated."""
    stated = problem.engine.host_flops_per_s
    return np.array([stated / c.best if stated else 1.0 for c in problem.fleet.curves])


def records(dtype: np.dtype[Any], **columns: Any) -> Records:
    """An array of records from its columns, all of one shape."""
    shape = np.shape(next(iter(columns.values())))
    found = np.zeros(shape, dtype=dtype)
    for name in dtype.names or ():
        found[name] = columns.pop(name)
    assert not columns, f"no such fields: {sorted(columns)}"
    return found


def _unjoined(fleet: Fleet) -> NDArray[np.bool_]:
    """``[M, M]``: pairs of different machines without a usable link."""
    return (fleet.machine_latency_s >= UNUSABLE_S) & ~np.eye(len(fleet.machines), dtype=bool)


def _port(fleet: Fleet, *, axis: int) -> Floats:
    """Seconds a byte of each machine's fastest link to (axis 1) or from (axis 0) another, ``[M]``; 0 where it has none."""
    others = np.where(np.eye(len(fleet.machines), dtype=bool) | _unjoined(fleet), np.inf, fleet.machine_inverse_bandwidth).min(axis=axis)
    return np.where(np.isinf(others), 0.0, others)  # type: ignore[no-any-return]


def _moved(problem: Problem, task: Task) -> tuple[float, float]:
    """Elements a token and layer of pointwise operations, whole and divided, as :data:`TASK` has them."""
    engine, model = problem.engine, task.model
    if task.name == "rollout":
        return model.pointwise_elements(fused=engine.rollout.fused_operations)
    whole, divided = model.pointwise_elements(fused=engine.fused_operations)
    return whole, divided + (0.0 if engine.flash_attention else model.score_elements(problem.work.sequence_tokens))


def _tasks(problem: Problem, hidden: Sequence[int]) -> Records:
    models = [t.model for t in problem.tasks]
    value = [t.value_head for t in problem.tasks]
    names = [t.name for t in problem.tasks]
    trained = {ROLE_OF_TASK[n]: i for i, n in enumerate(names) if n.endswith("_training")}
    return records(
        TASK,
        phase=[ROLLOUT if n == "rollout" else TRAINING if n.endswith("_training") else INFERENCE for n in names],
        training=[t.training for t in problem.tasks],
        value_head=value,
        width=[hidden.index(m.hidden) for m in models],
        follows=_follows(problem),
        shares_weights_with=[-1 if t.training or t.name == "rollout" else trained.get(ROLE_OF_TASK[t.name], -1) for t in problem.tasks],
        layers=[m.layers for m in models],
        heads=[m.heads for m in models],
        vocab=[m.vocab for m in models],
        hidden=[m.hidden for m in models],
        layer_params=[m.layer_params() for m in models],
        first_params=[m.embedding_params() for m in models],
        last_params=[2 * m.hidden if v else m.hidden + m.embedding_params() for m, v in zip(models, value, strict=True)],
        both_params=[-m.embedding_params() if m.tied_embeddings and not v else 0.0 for m, v in zip(models, value, strict=True)],
        layer_flops=[m.layer_matmul_flops(1) for m in models],
        attention_flops=[m.layer_attention_flops(1) for m in models],
        head_flops=[2.0 * m.hidden if v else m.head_flops(1) for m, v in zip(models, value, strict=True)],
        wide=[_wide(m) for m in models],
        whole_moved=[_moved(problem, t)[0] for t in problem.tasks],
        divided_moved=[_moved(problem, t)[1] for t in problem.tasks],
        kv_bytes=[m.kv_bytes_per_token_layer(problem.element_bytes) for m in models],
    )


def _job(problem: Problem, names: Sequence[str]) -> Records:
    work, engine, job = problem.work, problem.engine, problem.job
    response, tensors = job.response_tokens, problem.task("actor_training").model.weight_tensors()
    return records(
        JOB,
        rollout=[names.index("rollout")],
        actor=[names.index("actor_training")],
        asynchronous=[job.mode == "async"],
        sequences=[work.sequences],
        mini_batches=[work.mini_batches],
        steps=[work.optimizer_steps],
        recompute=[RECOMPUTE[job.engine.recompute]],
        offload=[job.engine.offload],
        optimizer_sharded=[engine.optimizer_sharded],
        uneven_layers=[engine.uneven_layers],
        uneven_batches=[engine.uneven_batches],
        flash=[engine.flash_attention],
        sequence_parallel=[engine.sequence_parallel],
        fully_sharded=[engine.fully_sharded],
        patchy=[_unjoined(problem.fleet).any()],
        divided_hops=[engine.divided_hops],
        hop_messages=[engine.hop_messages],
        continuous=[engine.rollout.continuous_batching],
        most_in_flight=[engine.rollout.sequences_in_flight],
        element_bytes=[problem.element_bytes],
        gradient_bytes=[engine.gradient_bytes],
        tokens=[work.sequence_tokens],
        prompt_mean=[work.prompt_mean],
        sequence_max=[work.sequence_max],
        response_mean=[response.mean],
        response_age=[mean_age(response)],
        prefill_tokens=[engine.rollout.prefill_tokens],
        process_bytes=[engine.memory.per_rank_bytes],
        generation_bytes=[engine.memory.generation_bytes],
        reserve=[engine.memory.reserve],
        overhead=[problem.overhead_s],
        launch=[engine.launch_layer_s],
        launch_token=[engine.launch_token_s],
        beside=[0.0 if engine.host_flops_per_s else 1.0],
        step_gap=[engine.rollout.host.gap_s],
        step_each=[engine.rollout.host.sequence_s],
        step_layer=[engine.rollout.host.layer_s],
        export=[tensors * engine.export.tensor_s],
        gather=[tensors * engine.export.collectives * engine.export.collective_s],
        gather_trips=[2.0 * tensors * engine.export.collectives],
    )


def _nodes(response: Lengths) -> Records:
    tokens, weights = node_lengths(response.max)
    return records(NODE, tokens=tokens, weight=weights, survival=survival_at(tokens, response))


def _follows(problem: Problem) -> list[int]:
    index: dict[str, int] = {t.name: i for i, t in enumerate(problem.tasks)}
    found = [-1] * len(index)
    for rule in problem.engine.same_strategy:
        if rule.task in index and rule.as_ in index and problem.task(rule.task).model.layers == problem.task(rule.as_).model.layers:
            found[index[rule.task]] = index[rule.as_]
    return found


def _wide(model: ModelSpec) -> float:
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return q + 2.0 * kv + 3.0 * model.intermediate


def _curves(curves: Sequence[Curve], hidden: Sequence[int]) -> tuple[Ints, Records]:
    """Rate curves at every width that a matrix cut in 1 … MOST_TP shards has: ``[H, P, C]`` points and ``[H, P, C, K]`` of POINT."""
    flat = [_on_union(c) for c in curves]
    shape = (len(hidden), MOST_TP, len(curves))
    points, curve = np.ones(shape, dtype=np.int64), np.zeros((*shape, max(len(t) for t, _, _ in flat)), dtype=POINT)
    for c, (logs, widths, table) in enumerate(flat):
        points[:, :, c] = len(logs)
        curve["tokens"][:, :, c, : len(logs)] = logs
        for h, size in enumerate(hidden):
            for p in range(MOST_TP):
                width = np.log(max(equivalent_width(hidden=size, tp=p + 1), 1.0))
                curve["rate"][h, p, c, : len(logs)] = [np.interp(width, widths, table[:, k]) for k in range(len(logs))]
    return points, curve


def _on_union(curve: Curve) -> tuple[Floats, Floats, Floats]:
    """(log tokens [K], log widths [W], log rates [W, K]) on the union of the token counts: interpolation in both logs stays what it was."""
    if not curve.widths:
        return np.zeros(1), np.zeros(1), np.array([[np.log(curve.flat)]])
    union = np.log(sorted({t for ts in curve.tokens for t in ts}))
    table = np.array([np.interp(union, np.log(t), np.log(r)) for t, r in zip(curve.tokens, curve.rates, strict=True)])
    return union, np.log(curve.widths), table


def build_ledger(tables: Tables) -> Ledger:
    """Outputs and scratch memory for one thread."""
    t, d, m, c = len(tables.task), len(tables.dev), len(tables.box), tables.factor.shape[1]
    return Ledger(
        time=np.zeros(t + 1),
        terms=np.zeros((t + 1, len(TERMS))),
        memory=np.zeros((t, WORKING + 1, d)),
        slot=np.zeros(d, dtype=SLOT),
        groups=np.zeros((t, OVERFLOW + 1)),
        total=np.zeros(1, dtype=TOTAL),
        pair=np.zeros((m, m), dtype=PAIR),
        pace=np.zeros(c, dtype=PACE),
        machines=np.zeros((6, m)),
        seen=np.zeros((DISTINCT, 4)),
        floats=np.zeros((4, d)),
        whole=np.zeros((5, d), dtype=np.int64),
    )


def empty_flat(tables: Tables) -> Flat:
    """A plan without ranks: every task in group −1."""
    t, d = len(tables.task), len(tables.dev)
    row = np.zeros(t, dtype=ROW)
    row["group"] = -1
    return Flat(row=row, **{name: np.zeros((t, d), dtype=np.int64) for name in ("ranks", "split", "local", "micro")})


def write_task(flat: Flat, task: int, layout: Layout, group: int) -> None:
    """Put a layout into a task's row."""
    flat.row[task] = (group, *layout.ranks.shape, layout.micro_batches)
    flat.ranks[task, : layout.ranks.size] = layout.ranks.ravel()
    flat.split[task, : layout.pp] = layout.layers
    flat.local[task, : layout.dp] = layout.local
    flat.micro[task, : layout.dp] = layout.micro


def flat_plan(problem: Problem, groups: Sequence[Mapping[str, Layout]]) -> Flat:
    """Layouts by group as a plan of the kernel's."""
    flat = empty_flat(compiled(problem).tables)
    index: dict[str, int] = {t.name: i for i, t in enumerate(problem.tasks)}
    for g, layouts in enumerate(groups):
        for name, layout in layouts.items():
            write_task(flat, index[name], layout, g)
    return flat


def read_task(flat: Flat, task: int) -> Layout:
    """A task's row as a layout."""
    _, dp, pp, tp, micro_batches = (int(n) for n in flat.row[task])
    return Layout(
        ranks=flat.ranks[task, : dp * pp * tp].reshape(dp, pp, tp).copy(),
        layers=tuple(flat.split[task, :pp].tolist()),
        local=tuple(flat.local[task, :dp].tolist()),
        micro=tuple(flat.micro[task, :dp].tolist()),
        micro_batches=micro_batches,
    )
