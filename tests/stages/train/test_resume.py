"""A machine is lost in the middle of a run; the rerun goes on from the last checkpoint. Real Ray, verl, Megatron-Core and store."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil
import pytest

from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.store import open_store
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from stages.train.checkpoints import STAGE
from tests.stages.train.launch import LIMIT_S, NEEDS_VLLM, SHORT, run, start
from tests.stages.train.requests import write_request
from tests.stages.train.support import grpo_plan, job, ppo_plan, rollout_apart, topology, with_reward

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2 * LIMIT_S)]
ASYNC = (*SHORT, "batch.mini_batch_prompts=4", "iterations=4", "checkpoint_every=2", "mode=async")


def log_of(folder: Path) -> Throughput:
    return Throughput.from_jsonl((folder / "work" / "throughput.jsonl").read_bytes(), where="log")


def ray_node(family: list[psutil.Process], machine: str) -> psutil.Process:
    """The process that is this machine's Ray node, by the resource it declares."""
    (node,) = [p for p in family if p.name() == "raylet" and any(f"machine:{machine}," in part for part in p.cmdline())]
    return node


def after_iteration_3(process: subprocess.Popen[str], folder: Path) -> IO[str]:
    """The rest of the output, once the third iteration is told of."""
    assert process.stdout is not None
    for text in process.stdout:
        if '"done":3.0' in text:
            return process.stdout
    pytest.fail((folder / "stderr.txt").read_text()[-3000:])


def test_a_lost_machine_ends_the_run_by_name_and_the_rerun_goes_on(tmp_path: Path) -> None:
    """Iteration 3 is computed twice: by the run that is to lose a machine, and by the rerun from the checkpoint after iteration 2."""
    tiny, fleet = job("tiny-grpo", *SHORT, "batch.mini_batch_prompts=4", "iterations=4", "checkpoint_every=2"), topology(1, 1)
    request = write_request(tmp_path, tiny, fleet, grpo_plan(tiny, fleet, ["m0-d0", "m1-d0"], pp=2, layers=[3, 1]))
    process = start(request)
    try:
        output = after_iteration_3(process, tmp_path)
        ray_node(psutil.Process(process.pid).children(recursive=True), "m1").kill()
        rest = output.read()
        status = process.wait(timeout=300)
    finally:
        process.kill()
    outcome = json.loads(rest.splitlines()[-1])
    assert (status, outcome["kind"]) == (9, "StageCrashed"), outcome
    assert outcome["message"].startswith("machine m1 was lost") and "last checkpoint" in outcome["fix"]
    interrupted = log_of(tmp_path)
    assert [line.step for line in interrupted.iterations] == [1, 2, 3] and "checkpoint" in interrupted.iterations[1].by_task_s

    status, events = run(request)
    assert status == 0, f"{events[-1]}\n{(tmp_path / 'stderr.txt').read_text()[-3000:]}"
    assert [e["done"] for e in events if e["event"] == "progress"] == [2, 3, 4], "it goes on after iteration 2"
    resumed = log_of(tmp_path)
    assert resumed.header.resumed_step == 2
    assert resumed.iterations[:2] == interrupted.iterations[:2] and [line.step for line in resumed.iterations] == [1, 2, 3, 4]
    # The same weights give the same samples of the same prompts, and the same entropy; all of them are in one mini-batch, so the order in which
    # they arrive changes the gradient by rounding only (bf16). That Adam's moments are loaded to the last bit is test_agreement's.
    first, again = interrupted.iterations[2], resumed.iterations[2]
    assert again.reward_mean == pytest.approx(first.reward_mean, abs=1e-6) and again.tokens == first.tokens
    assert again.entropy == pytest.approx(first.entropy, rel=1e-4) and again.grad_norm == pytest.approx(first.grad_norm, rel=0.1)
    left = [ref.version for ref in open_store(f"file://{tmp_path}/store", pipeline="test").versions(STAGE)]
    assert left == ["v1-0000002"], "one checkpoint is kept; the next run on this cluster removes it"


def colocated(fleet: Topology) -> tuple[Job, Plan]:
    """PPO whose rollout takes turns with the training, critic and reward model on machines of their own."""
    tiny = job("tiny-ppo", *ASYNC, "reward=model")
    return tiny, with_reward(ppo_plan(tiny, fleet, ["m0-d0"], ["m1-d0"]), ["m2-d0"])


def separate(fleet: Topology) -> tuple[Job, Plan]:
    """GRPO whose rollout goes on beside the training, on a machine of its own, also while the checkpoint is written."""
    tiny = job("tiny-grpo", *ASYNC, "engine.rollout=vllm")
    return tiny, rollout_apart(grpo_plan(tiny, fleet, ["m0-d0"]), ["m1-d0"])


@pytest.mark.parametrize("planned", [colocated, pytest.param(separate, marks=NEEDS_VLLM)])
def test_an_asynchronous_run_goes_on_with_what_it_was_sampling(planned: Callable[[Topology], tuple[Job, Plan]], tmp_path: Path) -> None:
    """verl's ``colocate_async`` and ``separate_async``. A batch is sampled ahead, so the checkpoint holds prompts whose answers are still to
    come."""
    fleet = topology(1, 1, 1)
    tiny, plan = planned(fleet)
    request = write_request(tmp_path, tiny, fleet, plan)
    process = start(request)
    try:
        output = after_iteration_3(process, tmp_path)
        process.send_signal(signal.SIGTERM)
        output.read()
        assert process.wait(timeout=300) == 143
    finally:
        process.kill()
    status, events = run(request)
    assert status == 0, f"{events[-1]}\n{(tmp_path / 'stderr.txt').read_text()[-3000:]}"
    (told,) = [e["message"] for e in events if e["event"] == "log" and "being sampled" in e["message"]]
    assert told == "4 prompts that were being sampled go on"
    log = log_of(tmp_path)
    assert log.header.resumed_step == 2 and [line.step for line in log.iterations] == [1, 2, 3, 4]
    for line in log.iterations:
        assert line.sequences == 32 and line.staleness is not None and 0 <= line.staleness <= 1
        assert line.reward_mean is not None and ("rollout_wait" in line.by_task_s) == (planned is separate)
        if tiny.reward == "model":
            assert line.by_task_s["reward_inference"] > 0 and "reward" not in line.by_task_s and line.reward_mean != 0.0
            assert [r.sequences for r in line.replicas["reward_inference"]] == [32] and "critic_training" in line.by_task_s
