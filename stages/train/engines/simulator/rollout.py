"""The rollout task: every replica generates its share of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from artifacts.errors import InfeasiblePlan
from stages.train.engines.simulator.collectives import ring
from stages.train.engines.simulator.decoding import Run, Server, generate, generate_static
from stages.train.engines.simulator.graph import Graph, Label
from stages.train.engines.simulator.memory import kv_tokens
from stages.train.engines.simulator.setting import Setting, Unit
from stages.train.engines.simulator.workload import Batch

STEPS_AT_ONCE = 32
"""Decode steps whose collectives are one exchange, where these leave the machine and may meet others on their way."""


def check_cache(setting: Setting) -> None:
    """Raise ``InfeasiblePlan`` where a replica cannot hold one sequence of the job's maximum length."""
    need = setting.job.sequence_tokens_max
    for i in range(setting.tasks["rollout"].strategy.dp):
        have = kv_tokens(setting, i)
        if have < need:
            what = f"rollout replica {i} has room for the keys and values of {have:,} tokens, one sequence may have {need:,}"
            raise InfeasiblePlan(what, fix="schedule again", details={"violations": [what]})


def add_rollout(graph: Graph, setting: Setting, batch: Batch, *, number: int) -> None:
    """Generate the batch; replicas take consecutive sequences."""
    rollout = setting.tasks["rollout"]
    at = 0
    for i, share in enumerate(rollout.strategy.local_batch_sequences):
        if not share:
            continue
        [unit] = rollout.units[i]
        mine = slice(at, at + share)
        at += share
        run = generate if setting.engine.rollout.continuous_batching else generate_static
        runs = run(_server(setting, unit, i), batch.prompt[mine].tolist(), batch.response[mine].tolist())
        _add_runs(graph, setting, unit, runs, replica=i, number=number)


def _server(setting: Setting, unit: Unit, replica: int) -> Server:
    rollout, rules = setting.tasks["rollout"], setting.engine.rollout

    def flops_per_s(tokens: float) -> float:
        return setting.devices.flops_per_s(unit, tokens=tokens, hidden=rollout.model.hidden)

    return Server(
        model=rollout.model,
        element_bytes=setting.element_bytes,
        tp=len(unit),
        read_bytes_per_s=setting.devices.read_bytes_per_s(unit),
        flops_per_s=flops_per_s,
        best_flops_per_s=setting.devices.best_flops_per_s(unit),
        fused=rules.fused_operations,
        host=rules.host.slower(setting.devices.host_slowness(unit, stated_flops_per_s=setting.engine.host_flops_per_s)),
        own_host=setting.engine.host_flops_per_s > 0,
        kv_tokens=kv_tokens(setting, replica),
        most_sequences=min(rules.sequences_in_flight, rollout.strategy.micro_batch_sequences),
        most_tokens=rules.prefill_tokens,
    )


def _add_runs(graph: Graph, setting: Setting, unit: Unit, runs: Sequence[Run], *, replica: int, number: int) -> None:
    """Two all-reduces a layer and step. Inside a machine nobody can slow them: prefill or decode up to the next change is one activity."""
    model = setting.tasks["rollout"].model
    across = len({setting.network.machine[d] for d in unit}) > 1
    for prefill, same in groupby(runs, key=lambda r: r.prefill):
        label = Label("rollout", "prefill" if prefill else "decode", number, replica)
        for run in _pieces(list(same)) if across else [_joined(list(same))]:
            rounds = max(1, round(run.steps / STEPS_AT_ONCE)) if across else 1
            bytes_ = run.tokens / run.steps * model.hidden * setting.element_bytes
            reduce = ring(setting.network, unit, bytes_, passes=2 * 2 * model.layers * run.steps / rounds)
            graph.add(label, unit, busy_s=run.busy_s / rounds + reduce.alone_s, rounds=rounds, flows=reduce.flows)


def _pieces(runs: list[Run]) -> Iterator[Run]:
    """Short runs joined until they have ``STEPS_AT_ONCE`` steps."""
    waiting: list[Run] = []
    for run in runs:
        waiting.append(run)
        if sum(r.steps for r in waiting) >= STEPS_AT_ONCE:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(runs: list[Run]) -> Run:
    steps, tokens = (int(np.sum([getattr(r, what) for r in runs])) for what in ("steps", "tokens"))
    return Run(steps=steps, busy_s=float(np.sum([r.busy_s for r in runs])), tokens=tokens, prefill=runs[0].prefill)
