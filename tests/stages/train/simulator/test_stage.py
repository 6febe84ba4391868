"""Described clusters through the stages as processes: one stage on its request, and the whole pipeline from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.deployment import Deployment
from artifacts.manifest import VersionRef
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.store import open_store
from artifacts.throughput import Throughput
from artifacts.validation import Validation

ROOT = Path(__file__).parents[4]
HETRL = Path(sys.executable).parent / "hetrl"
TESTBED, PPO, GRPO = ROOT / "infra/clusters/testbed-64.yaml", ROOT / "infra/jobs/qwen3-8b-ppo.yaml", ROOT / "infra/jobs/qwen3-4b-grpo.yaml"
SMALL = ("--set", "batch.prompts=96", "--set", "batch.mini_batch_prompts=48")


def hetrl(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HETRL_S", "HETRL_HOME"))}
    return subprocess.run([str(HETRL), *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=500, check=False,
                          env=clean | {"COLUMNS": "160"})


def test_the_whole_pipeline_on_a_cluster_that_is_described(tmp_path: Path) -> None:
    options = ("run", "--job", PPO, "--cluster", TESTBED, "--set", "iterations=4", *SMALL, "--json")
    done = hetrl(tmp_path, *options)
    assert done.returncode == 0, done.stderr[-3000:]
    made = json.loads(done.stdout.splitlines()[-1])
    store = open_store((tmp_path / ".hetrl/store").as_uri())
    ref = {stage: VersionRef(stage=stage, version=made[stage]["version"]) for stage in ("schedule", "deploy", "train", "validate")}
    plan, prediction, deployment = store.read(ref["schedule"], Plan), store.read(ref["schedule"], Prediction), store.read(ref["deploy"], Deployment)
    assert deployment.engine["simulated"] is True and deployment.ranks == [] and deployment.nodes == []
    assert deployment.checks and all(c.ok for c in deployment.checks)

    log = Throughput.from_jsonl(store.read_bytes(ref["train"], "throughput.jsonl"), where="log")
    assert log.header.simulated and log.header.engine == "simulator" and log.header.plan == plan.identity()
    assert [i.step for i in log.iterations] == [1, 2, 3, 4]
    for line in log.iterations:
        assert set(line.by_task_s) == {*plan.tasks, "actor_log_prob", "weight_update"}
        assert line.loss is None and line.reward_mean is None, "nothing is trained, so nothing is said of it"
        assert line.time_s > prediction.bound_s
    shown = json.loads(store.read_bytes(ref["train"], "trace.json"))
    assert {e["cat"] for e in shown["traceEvents"] if e["ph"] == "X"} == {*plan.tasks, "actor_log_prob", "weight_update"}

    validation = store.read(ref["validate"], Validation)
    assert validation.simulated and {row.task for row in validation.rows} == {*plan.tasks, "actor_log_prob", "weight_update"}
    assert "come from the simulator" in store.read_bytes(ref["validate"], "report.html").decode()
    again = json.loads(hetrl(tmp_path, *options).stdout.splitlines()[-1])
    assert all(again[stage]["hit"] for stage in ("profile", "schedule", "deploy", "train", "validate"))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_stage_by_stage_on_files_with_lengths_that_vary(tmp_path: Path, mode: str) -> None:
    job = ("--job", GRPO, *SMALL, "--set", f"mode={mode}", "--set", "response_tokens.mean=500", "--set", "iterations=8")
    out = ("--out", tmp_path)
    done = [hetrl(tmp_path, "profile", "--cluster", TESTBED, *out)]
    topology = ("--topology", tmp_path / "topology.json")
    plan = ("--plan", tmp_path / "plan.json")
    done.append(hetrl(tmp_path, "schedule", *topology, *job, *out, "--budget", "800"))
    done.append(hetrl(tmp_path, "deploy", *topology, *job, *plan, *out))
    done.append(hetrl(tmp_path, "train", *topology, *job, *plan, "--deployment", tmp_path / "deployment.json", *out))
    assert [d.returncode for d in done] == [0] * 4, [d.stderr[-2000:] for d in done]
    log = Throughput.from_jsonl((tmp_path / "throughput.jsonl").read_bytes(), where="log")
    assert [i.step for i in log.iterations] == list(range(1, 9))
    assert len({i.tokens for i in log.iterations}) == 8 and len({i.time_s for i in log.iterations}) == 8
    assert [i.staleness for i in log.iterations] == ([0.0, *[1.0] * 7] if mode == "async" else [None] * 8)

