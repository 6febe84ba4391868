"""Jobs and hand-made plans for small fleets, and requests to the stage."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from artifacts.base import Document
from artifacts.catalog import models
from artifacts.invocation import Log, Outcome, Progress, StageRequest, parse_event
from artifacts.job import Batch, Job, Lengths
from artifacts.manifest import Producer, VersionRef
from artifacts.plan import Group, Plan, Strategy
from artifacts.store import Store
from artifacts.topology import Topology

ROOT = Path(__file__).parents[3]


def tiny_job(**changes: object) -> Job:
    fields: dict[str, object] = {
        "name": "tiny", "models": {"actor": models()["tiny-qwen3"]}, "batch": Batch(prompts=8, responses_per_prompt=4),
        "prompt_tokens": Lengths(mean=24, max=64), "response_tokens": Lengths(mean=12, max=16)}
    return Job(**(fields | changes))  # type: ignore[arg-type]


def strategy(ranks: list[str], *, dp: int, pp: int, tp: int, layers: list[int], shares: list[int] | None = None) -> Strategy:
    return Strategy(dp=dp, pp=pp, tp=tp, layers=layers, ranks=ranks, micro_batch_sequences=4,
                    local_batch_sequences=shares or [32 // dp] * dp)


def uneven_plan(job: Job, topology: Topology) -> Plan:
    """For machines a, b, c with 3, 1, 2 devices: the actor on four of them in two uneven stages, the critic on the other two."""
    actor = strategy(["c-1", "a-2", "b-0", "a-0"], dp=2, pp=2, tp=1, layers=[3, 1], shares=[20, 12])
    rollout = strategy(["c-1", "a-2", "b-0", "a-0"], dp=4, pp=1, tp=1, layers=[4])
    critic = strategy(["a-1", "c-0"], dp=1, pp=1, tp=2, layers=[4])
    groups = [Group(name="actor", tasks=["rollout", "reference_inference", "actor_training"], devices=["c-1", "a-2", "b-0", "a-0"]),
              Group(name="critic", tasks=["critic_inference", "critic_training"], devices=["a-1", "c-0"])]
    return Plan(job=job.identity(), topology_fingerprint=topology.fingerprint, groups=groups, engine_hints={"kv_bytes": 1024},
                tasks={"rollout": rollout, "reference_inference": actor, "actor_training": actor, "critic_inference": critic,
                       "critic_training": critic})


def pool_plan(job: Job, topology: Topology, devices: list[str]) -> Plan:
    """A GRPO plan: one group, every device a replica of its own."""
    count = len(devices)
    shares = [job.batch.sequences // count + (i < job.batch.sequences % count) for i in range(count)]
    s = strategy(devices, dp=count, pp=1, tp=1, layers=[job.model("actor").layers], shares=shares)
    tasks = job.tasks()
    return Plan(job=job.identity(), topology_fingerprint=topology.fingerprint, groups=[Group(name="all", tasks=tasks, devices=devices)],
                tasks=dict.fromkeys(tasks, s))


def put(store: Store, stage: str, document: Document, *, version: str = "v1", inputs: dict[str, VersionRef] | None = None) -> VersionRef:
    writer = store.new_version(stage, version)
    writer.put_document(document)
    now = datetime.now(UTC)
    return writer.commit(inputs=inputs or {}, context={}, parameters={}, summary={},
                         producer=Producer(hetrl="0", code_digest="", started_at=now, finished_at=now)).ref


def request(folder: Path, store: Store, inputs: dict[str, VersionRef], *, version: str = "d1", **parameters: object) -> Path:
    path = folder / f"request-{version}.json"
    path.write_text(StageRequest(stage="deploy", store=store.url, pipeline="hetrl", version=version, inputs=inputs, parameters=parameters,
                                 run_id=f"run-{version}", workdir=str(folder / f"work-{version}")).to_json())
    return path


def start(request_file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "stages.deploy", "--request", str(request_file)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def finish(process: subprocess.Popen[str]) -> tuple[int, list[Log | Progress], Outcome, str]:
    """Exit status, events, outcome, standard error."""
    out, err = process.communicate(timeout=540)
    events = [parse_event(line) for line in out.splitlines()]
    assert events and isinstance(events[-1], Outcome), (out, err)
    return process.returncode, events[:-1], events[-1], err  # type: ignore[return-value]
