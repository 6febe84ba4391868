"""``python -m stages.schedule`` on a real store: outcome, exit status, files."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from artifacts.base import Document
from artifacts.invocation import Outcome, StageRequest, parse_event
from artifacts.job import Constraints, Job
from artifacts.manifest import Producer, VersionRef
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.store import Store, open_store
from artifacts.topology import Topology
from tests.stages.schedule.builders import CPU, job, topology

ROOT = Path(__file__).parents[3]


def put(store: Store, stage: str, document: Document) -> VersionRef:
    writer = store.new_version(stage, "v1")
    writer.put_document(document)
    now = datetime.now(UTC)
    return writer.commit(producer=Producer(hetrl="test", code_digest="test", started_at=now, finished_at=now)).ref


def invoke(folder: Path, work: Job, fleet: Topology, **parameters: object) -> tuple[int, Outcome, Store]:
    store = open_store(f"file://{folder}/store", pipeline="p")
    inputs = {"job": put(store, "job", work), "topology": put(store, "profile", fleet)}
    request = StageRequest(stage="schedule", store=store.url, pipeline="p", version="v1", inputs=inputs, parameters=parameters, workdir=str(folder / "work"))
    path = folder / "request.json"
    path.write_text(request.to_json())
    done = subprocess.run([sys.executable, "-m", "stages.schedule", "--request", str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    outcome = parse_event(done.stdout.strip().splitlines()[-1])
    assert isinstance(outcome, Outcome), done.stderr
    return done.returncode, outcome, store


def test_a_plan_is_written_with_its_price_its_history_and_a_report(tmp_path: Path) -> None:
    status, outcome, store = invoke(tmp_path, job("tiny-qwen3", algorithm="ppo"), topology([(CPU, 2)]), evaluations=500, seed=1)
    assert (status, outcome.status) == (0, "ok"), outcome
    ref = VersionRef(stage="schedule", version="v1")
    plan, prediction, search = store.read(ref, Plan), store.read(ref, Prediction), store.read(ref, Search)
    assert prediction.plan == plan.identity()
    assert (search.solver, search.status, search.seed) == ("auto", "feasible", 1)
    summary = outcome.summary
    assert summary["feasible"] is True and summary["iteration_time_s"] == prediction.iteration_time_s
    assert summary["gap"] == pytest.approx(prediction.iteration_time_s / prediction.bound_s - 1)
    assert len(summary["groups"]) == len(plan.groups) and summary["evaluations"] <= 500 + 40
    assert store.read_bytes(ref, "report.html").lstrip().lower().startswith(b"<!doctype html>")


def test_an_infeasible_job_exits_with_status_3_and_all_violations(tmp_path: Path) -> None:
    constraints = Constraints(pin={"rollout": ["m0"], "actor_training": ["m1"]}, fix={"actor_training": {"tp": 3}})
    status, outcome, store = invoke(tmp_path, job("tiny-qwen3", constraints=constraints), topology([(CPU, 1), (CPU, 1)]))
    assert (status, outcome.kind) == (3, "InfeasiblePlan")
    assert {v["rule"] for v in outcome.details["violations"]} == {"share_group", "tensor_parallel", "devices"}
    assert all(v["mend"] for v in outcome.details["violations"]) and outcome.fix
    assert store.find("schedule", "v1") is None


def test_a_wrong_parameter_exits_with_status_2(tmp_path: Path) -> None:
    status, outcome, _ = invoke(tmp_path, job("tiny-qwen3"), topology([(CPU, 1)]), solvr="auto")
    assert (status, outcome.kind) == (2, "InputError")
    assert "solvr" in outcome.message and "solver" in outcome.message


def test_planning_loads_nothing_heavy() -> None:
    code = "import sys, json, stages.schedule.stage; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"torch", "ray", "verl", "matplotlib", "prefect"}
