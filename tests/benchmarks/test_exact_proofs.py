"""The page about exact optima is what its lines say, and the lines say what a proof must."""

from __future__ import annotations

import pytest

from stages.schedule.exact.solver import NOTHING_BETTER
from tests.benchmarks.exact_page import page
from tests.benchmarks.exact_proofs import PAGE, known
from tests.benchmarks.instances import instances


def test_the_page_is_made_from_the_lines() -> None:
    assert page(instances(), known()) == PAGE.read_text(encoding="utf-8"), "run python -m tests.benchmarks.exact_proofs --page"


def test_a_proof_has_a_bound_that_its_plan_reaches_and_methods_that_agree() -> None:
    names = {i.name for i in instances()}
    for (instance, solver), line in known().items():
        assert instance in names and line["devices_used"] >= 1
        if line["status"] == "optimal":
            assert line["bound_s"] == pytest.approx(line["iteration_s"], rel=1e-6), (instance, solver)
            ended = {name: s for name, s in line["methods"].items() if "not finished" not in name}
            assert ended and len({s is None for s in ended.values()}) == 1, (instance, solver)
            for name, found in ended.items():
                assert name.endswith(NOTHING_BETTER) if found is None else found == pytest.approx(line["iteration_s"], rel=1e-6), (instance, solver)


def test_the_instances_cover_what_they_should() -> None:
    made = instances()
    assert len(made) == 20 and max(len(i.topology.devices) for i in made) <= 24
    assert {(i.job.algorithm, i.job.mode) for i in made} == {(a, m) for a in ("ppo", "grpo") for m in ("sync", "async")}
    assert {i.job.model("actor").name for i in made} == {"Qwen3-4B", "Qwen3-8B", "Qwen3-14B"}
    assert {len({d.name for d in i.topology.devices}) for i in made} == {1, 2, 3, 4}
    assert {len({m.region for m in i.topology.machines}) for i in made} == {1, 2, 3}
    assert any(len({m.name for m in i.job.models.values()}) > 1 for i in made)
