"""The order of passes and handovers, against the published form of 1F1B and against its closed-form time."""

from __future__ import annotations

import numpy as np
import pytest

from stages.train.engines.simulator.graph import Graph, Label
from stages.train.engines.simulator.pipeline import Handover, Step, Work, in_order, inference_program, training_program

GRID = [(stages, count) for stages in (1, 2, 3, 4, 7) for count in (1, 2, 3, 5, 12)]


def programs(stages: int, count: int, *, training: bool) -> list[list[Step]]:
    make = training_program if training else inference_program
    return [list(make(j, stages, count)) for j in range(stages)]


@pytest.mark.parametrize(("stages", "count"), GRID)
def test_every_pass_once_and_nothing_before_what_it_needs(stages: int, count: int) -> None:
    done: set[Step] = set()
    downs, ups = set(), set()
    steps = list(in_order(programs(stages, count, training=True)))
    for step in steps:
        if isinstance(step, Handover):
            if step.down >= 0:
                assert Work("F", step.stage, step.down) in done
                downs.add((step.stage, step.down))
            if step.up >= 0:
                assert Work("B", step.stage + 1, step.up) in done
                ups.add((step.stage, step.up))
        elif step.kind == "F":
            assert step.stage == 0 or (step.stage - 1, step.micro) in downs
            done.add(step)
        else:
            assert Work("F", step.stage, step.micro) in done
            assert step.stage == stages - 1 or (step.stage, step.micro) in ups
            done.add(step)
    assert len(done) == 2 * stages * count == sum(isinstance(s, Work) for s in steps)
    assert len(downs) == len(ups) == (stages - 1) * count


@pytest.mark.parametrize(("stages", "count"), GRID)
def test_a_stage_keeps_activations_of_no_more_micro_batches_than_1f1b_allows(stages: int, count: int) -> None:
    """Narayanan et al., arXiv 2104.04473: stage j of p holds at most p − j."""
    for j, program in enumerate(programs(stages, count, training=True)):
        kept = most = 0
        for step in program:
            if isinstance(step, Work):
                kept += 1 if step.kind == "F" else -1
                most = max(most, kept)
        assert kept == 0 and most == min(stages - j, count)


@pytest.mark.parametrize(("stages", "count"), GRID)
def test_equal_stages_take_the_closed_form(stages: int, count: int) -> None:
    """(m + p − 1)·(f + b) with free handovers: the bubble of Narayanan et al., arXiv 2104.04473."""
    g = Graph(np.empty(0))
    for step in in_order(programs(stages, count, training=True)):
        if isinstance(step, Handover):
            g.add(Label("t", "h", 0), (step.stage, step.stage + 1))
        else:
            g.add(Label("t", step.kind, 0), (step.stage,), busy_s=1.0 if step.kind == "F" else 2.0)
    assert g.play().end.max() == pytest.approx((count + stages - 1) * 3.0)


def test_a_middle_stage_of_inference_pays_for_receiving_and_for_sending() -> None:
    """Blocking exchanges of 1 s and passes of 2 s: a middle stage turns in 4 s, an end stage in 3 s."""
    stages, count = 4, 20
    g = Graph(np.empty(0))
    for step in in_order(programs(stages, count, training=False)):
        if isinstance(step, Handover):
            g.add(Label("t", "h", 0), (step.stage, step.stage + 1), busy_s=1.0)
        else:
            g.add(Label("t", "F", 0), (step.stage,), busy_s=2.0)
    ends = [float(g.play().end[i]) for i, d in enumerate(g.devices) if d == (stages - 1,)]
    assert np.diff(ends)[5:] == pytest.approx(4.0)


def test_a_deadlock_is_a_bug_that_is_named() -> None:
    with pytest.raises(AssertionError, match="wait for each other"):
        list(in_order([[Handover(0, 0, -1)], [Work("F", 1, 0)]]))
