"""Micro-batches through the stages of one replica, in the order in which Megatron-Core runs them without interleaving.

Training is one forward, one backward (1F1B). Stages hand over by blocking exchanges, as Megatron's ``p2p_communication`` does: a send
and the receive that meets it take both stages' time; in the steady state a forward activation and a backward gradient cross in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from stages.train.engines.simulator.graph import Graph, Label
from stages.train.engines.simulator.layers import Pass, Passes
from stages.train.engines.simulator.setting import Unit
from stages.train.engines.simulator.workload import MicroBatch


class Work(NamedTuple):
    """A forward (F) or backward (B) pass of micro-batch ``micro`` on ``stage``."""

    kind: Literal["F", "B"]
    stage: int
    micro: int


class Handover(NamedTuple):
    """Between ``stage`` and the next: the activations of one micro-batch down, the gradients of another up; −1: none."""

    stage: int
    down: int
    up: int


Step = Work | Handover


def training_program(stage: int, stages: int, count: int) -> Iterator[Step]:
    """What one stage does in one mini-batch of ``count`` micro-batches: warm-up, one forward one backward, cool-down."""
    first, last = stage == 0, stage == stages - 1
    ahead = min(stages - stage - 1, count)
    steady = count - ahead
    for i in range(ahead):
        if not first:
            yield Handover(stage - 1, i, -1)
        yield Work("F", stage, i)
        yield Handover(stage, i, -1)
    if steady and not first:
        yield Handover(stage - 1, ahead, -1)
    for i in range(steady):
        yield Work("F", stage, ahead + i)
        if not last:
            yield Handover(stage, ahead + i, i)
        yield Work("B", stage, i)
        if not first:
            yield Handover(stage - 1, ahead + i + 1 if i < steady - 1 else -1, i)
    for i in range(steady, count):
        if not last:
            yield Handover(stage, -1, i)
        yield Work("B", stage, i)
        if not first:
            yield Handover(stage - 1, -1, i)


def inference_program(stage: int, stages: int, count: int) -> Iterator[Step]:
    """A forward pass of every micro-batch: receive, compute, send."""
    for i in range(count):
        if stage > 0:
            yield Handover(stage - 1, i, -1)
        yield Work("F", stage, i)
        if stage < stages - 1:
            yield Handover(stage, i, -1)


def in_order(programs: Sequence[Sequence[Step]]) -> Iterator[Step]:
    """All steps of all stages, each stage's in its order; a handover when both its stages have come to it."""
    at = [0] * len(programs)
    waiting = list(range(len(programs) - 1, -1, -1))
    while waiting:
        j = waiting.pop()
        while at[j] < len(programs[j]):
            step = programs[j][at[j]]
            if isinstance(step, Handover):
                other = step.stage + 1 if step.stage == j else step.stage
                if at[other] == len(programs[other]) or programs[other][at[other]] != step:
                    break
                at[other] += 1
                waiting.append(other)
            at[j] += 1
            yield step
    if any(at[j] < len(p) for j, p in enumerate(programs)):
        raise AssertionError("the stages of a pipeline wait for each other for ever")


def add_pipeline(
    graph: Graph, passes: Passes, units: Sequence[Unit], micro: Sequence[MicroBatch], *, task: str, batch: int, replica: int, training: bool
) -> None:
    """Play ``micro`` through one replica; every stage's devices are held from its first step to its last."""
    make = training_program if training else inference_program
    programs = [list(make(j, len(units), len(micro))) for j in range(len(units))]
    known: dict[tuple[str, int, MicroBatch], Pass] = {}
    labels: dict[str, Label] = {}

    def label(what: str) -> Label:
        return labels.setdefault(what, Label(task, what, batch, replica))

    for step in in_order(programs):
        if isinstance(step, Handover):
            a, b = units[step.stage], units[step.stage + 1]
            pairs = passes.hop(a, b, micro[step.down]) if step.down >= 0 else []
            pairs += passes.hop(b, a, micro[step.up]) if step.up >= 0 else []
            handed = passes.exchange(pairs)
            graph.add(label("handover"), (*a, *b), busy_s=handed.alone_s, flows=handed.flows)
            continue
        key = (step.kind, step.stage, micro[step.micro])
        if key not in known:
            compute = passes.forward if step.kind == "F" else passes.backward
            known[key] = compute(units[step.stage], step.stage, micro[step.micro])
        done = known[key]
        graph.add(label("forward" if step.kind == "F" else "backward"), units[step.stage], busy_s=done.busy_s, rounds=done.rounds,
                  flows=done.exchange.flows)
