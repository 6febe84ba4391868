"""The stage as it is launched: a process, a request, a store. Real Ray, verl and Megatron-Core."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from artifacts.checkpoint import Checkpoint
from artifacts.manifest import VersionRef
from artifacts.store import open_store
from artifacts.throughput import Throughput
from tests.stages.train.launch import SHORT, run, start
from tests.stages.train.requests import write_request
from tests.stages.train.support import deployment, grpo_plan, job, topology


@pytest.mark.engine
def test_a_plan_is_trained_as_it_stands(tmp_path: Path) -> None:
    """Pipeline stages of 3 and 1 layers on two machines, the first stage on the second machine."""
    tiny, fleet = job("tiny-grpo", *SHORT), topology(1, 1)
    plan = grpo_plan(tiny, fleet, ["m1-d0", "m0-d0"], pp=2, layers=[3, 1])
    status, events = run(write_request(tmp_path, tiny, fleet, plan))
    assert status == 0, (tmp_path / "stderr.txt").read_text()[-3000:]
    outcome = events[-1]
    assert outcome["status"] == "ok" and outcome["summary"]["iterations"] == 2
    progress = [e for e in events if e["event"] == "progress" and e["done"]]
    assert [e["done"] for e in progress] == [1, 2] and all(e["total"] == 2 for e in progress)

    store, ref = open_store(f"file://{tmp_path}/store", pipeline="test"), VersionRef(stage="train", version="v1")
    log = Throughput.from_jsonl(store.read_bytes(ref, "throughput.jsonl"), where="throughput.jsonl")
    assert log.header.engine == "verl" and not log.header.simulated and log.header.versions["verl"] == "0.9.1"
    assert log.header.devices == {"m0-d0": "class0", "m1-d0": "class1"}
    for line in log.iterations:
        assert sum(line.by_task_s.values()) == pytest.approx(line.time_s, rel=0.02)
        assert {"rollout", "reference_inference", "actor_log_prob", "actor_training", "weight_update"} <= set(line.by_task_s)
        assert line.sequences == 32 and line.tokens > 32 * 20
        assert line.loss is not None and line.grad_norm is not None and line.reward_mean is not None and line.entropy is not None
        assert [r.sequences for r in line.replicas["actor_training"]] == [32]
        assert [r.sequences for r in line.replicas["rollout"]] == [16, 16]
    assert log.iterations[0].reward_mean > 0 and log.iterations[0].grad_norm > 0
    # The policy starts almost uniform over the vocabulary: its entropy is close to that of 512 equal tokens.
    assert log.iterations[0].entropy == pytest.approx(6.238, abs=0.05)
    assert (tmp_path / "work" / "throughput.jsonl").read_bytes() == store.read_bytes(ref, "throughput.jsonl")

    checkpoint = store.read(ref, Checkpoint)
    assert checkpoint.format == "hf" and checkpoint.step == 2 and not checkpoint.resumable
    weights = tmp_path / "weights"
    weights.mkdir()
    for file in checkpoint.files:
        store.read_file(ref, file.name, weights / file.name)
    from transformers import AutoModelForCausalLM

    trained = AutoModelForCausalLM.from_pretrained(weights)
    untrained = AutoModelForCausalLM.from_pretrained(next((tmp_path / "work" / "models").iterdir()))
    still = [name for (name, a), b in zip(trained.named_parameters(), untrained.parameters(), strict=True) if a.float().equal(b.bfloat16().float())]
    assert not still, "every weight of both stages has moved"


@pytest.mark.engine
def test_sigterm_ends_everything(tmp_path: Path) -> None:
    tiny, fleet = job("tiny-grpo", *SHORT, "iterations=1000"), topology(1)
    process = start(write_request(tmp_path, tiny, fleet, grpo_plan(tiny, fleet, ["m0-d0"])))
    try:
        assert process.stdout is not None
        for text in process.stdout:
            if '"done":1.0' in text:
                break
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) > 5
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        status = process.wait(timeout=300)
    finally:
        process.kill()
    assert status == 143
    assert "was stopped; nothing was published" in rest.splitlines()[-1]
    _gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, [p.cmdline()[:3] for p in alive]
    assert open_store(f"file://{tmp_path}/store", pipeline="test").find("train", "v1") is None
    log = Throughput.from_jsonl((tmp_path / "work" / "throughput.jsonl").read_bytes(), where="log")
    assert 1 <= len(log.iterations) <= 2, "the iteration it was in is not finished, nor a thousand of them"


@pytest.mark.engine
def test_a_dead_process_stops_the_run_with_one_line(tmp_path: Path) -> None:
    tiny, fleet = job("tiny-grpo", *SHORT, "iterations=1000"), topology(1)
    process = start(write_request(tmp_path, tiny, fleet, grpo_plan(tiny, fleet, ["m0-d0"])))
    try:
        assert process.stdout is not None
        for text in process.stdout:
            if '"done":1.0' in text:
                break
        family = psutil.Process(process.pid).children(recursive=True)
        (server,) = [p for p in family if any("HfServer" in part for part in p.cmdline())]
        server.kill()
        rest = process.stdout.read()
        status = process.wait(timeout=300)
    finally:
        process.kill()
    outcome = json.loads(rest.splitlines()[-1])
    assert (status, outcome["kind"]) == (9, "StageCrashed"), outcome
    assert outcome["message"].startswith("a process of the training died") and len(outcome["message"]) < 600
    assert len(Throughput.from_jsonl((tmp_path / "work" / "throughput.jsonl").read_bytes(), where="log").iterations) >= 1


def test_a_deployment_of_another_plan_is_refused(tmp_path: Path) -> None:
    tiny, fleet = job("tiny-grpo", *SHORT), topology(1, 1)
    plan, other = grpo_plan(tiny, fleet, ["m0-d0", "m1-d0"], pp=2), grpo_plan(tiny, fleet, ["m1-d0", "m0-d0"], pp=2)
    status, events = run(write_request(tmp_path, tiny, fleet, plan, deployment(other, fleet)))
    assert (status, events[-1]["kind"]) == (4, "ClusterChanged")
    assert "another plan" in events[-1]["message"]


def test_ranks_found_elsewhere_are_refused(tmp_path: Path) -> None:
    tiny, fleet = job("tiny-grpo", *SHORT), topology(1, 1)
    plan = grpo_plan(tiny, fleet, ["m0-d0", "m1-d0"], pp=2)
    swapped = deployment(grpo_plan(tiny, fleet, ["m1-d0", "m0-d0"], pp=2), fleet).model_copy(update={"plan": plan.identity()})
    status, events = run(write_request(tmp_path, tiny, fleet, plan, swapped))
    assert (status, events[-1]["kind"]) == (4, "ClusterChanged")
    assert "rank 0 of rollout on m1/m1-d0, planned on m0-d0" in events[-1]["message"]


def test_a_plan_for_another_topology_is_refused(tmp_path: Path) -> None:
    tiny, fleet, other = job("tiny-grpo", *SHORT), topology(1, 1), topology(2)
    plan = grpo_plan(tiny, other, ["m0-d0", "m0-d1"], pp=2)
    status, events = run(write_request(tmp_path, tiny, fleet, plan, deployment(plan, other)))
    assert (status, events[-1]["kind"]) == (4, "ClusterChanged")
    assert events[-1]["message"].startswith(f"the plan was made for topology {other.fingerprint[:12]}") and events[-1]["fix"] == "schedule again"
