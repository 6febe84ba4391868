"""What a re-plan says and keeps, on the real schedule stage with an inventory, without a Prefect server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from artifacts.manifest import Manifest, VersionRef
from artifacts.plan import Plan
from artifacts.plan_diff import PlanDiff, working_devices
from artifacts.search import Search
from flows.pipeline import Pipeline
from flows.replan import Replanned, compare, plan_in_force
from flows.session import RunRequest, new_run_id, open_run

ROOT = Path(__file__).parents[2]
JOB = str(ROOT / "infra/jobs/qwen3-4b-grpo.yaml")
PAIR: dict[str, Any] = yaml.safe_load((ROOT / "infra/clusters/workstation-pair.yaml").read_text())


def scheduled(folder: Path, *, warm: bool = False, stable: bool = False, **changes: object) -> tuple[Pipeline, Manifest | None]:
    """A run until schedule on the pair of workstations as changed; with the plan that was in force before it."""
    inventory = folder / "pair.yaml"
    inventory.write_text(yaml.safe_dump(PAIR | changes))
    request = RunRequest(job=JOB, cluster=str(inventory), until_stage="schedule", budget="300", store=(folder / "store").as_uri(), warm=warm,
                         prefer_stable=stable)
    pipeline = open_run(request, run_id=new_run_id())
    pipeline.step("profile", lambda stage, event: None)
    before = plan_in_force(pipeline)
    pipeline.step("schedule", lambda stage, event: None)
    return pipeline, before


def test_what_a_lost_machine_and_a_slow_link_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, before = scheduled(tmp_path)
    assert before is None, "nothing was in force before the first plan"
    again, before = scheduled(tmp_path)
    assert before is not None and before.ref == first.known["plan"] and compare(again, before) is None

    alone, before = scheduled(tmp_path, warm=True, machines=PAIR["machines"][1:])
    assert before is not None
    made = alone.store.manifest(alone.known["plan"])
    assert made.context == {"plan": [before.ref]} and made.version != before.version
    replanned = compare(alone, before, reason="a machine was taken away")
    assert replanned is not None
    old = working_devices(alone.store.read(before.ref, Plan))
    diff = replanned.diff
    assert diff.gone == sorted(d for d in old if d.startswith("old.")) and diff.gone
    assert diff.stays_s is None and diff.gain is None and len(diff.cannot_stay) == len(diff.gone)
    assert diff.causes == ["a machine was taken away", "machine old is gone, with 4 devices"]
    assert {m.task for m in diff.moves} >= {"rollout"} and all(m.load_bytes >= 0 for m in diff.moves) and diff.load_bytes > 0
    moves = alone.store.read(alone.known["search"], Search).moves
    assert moves is not None and (moves.moved, moves.tasklets) == (diff.tasklets_moved, diff.tasklets) and moves.horizon_iterations is None
    assert moves.stays_s is None and f"{diff.tasklets_moved} of {diff.tasklets} tasklets moved" in replanned.markdown
    assert "a machine was taken away" in replanned.markdown and "cannot run" in replanned.markdown
    _kept(alone, replanned)

    slow, before = scheduled(tmp_path, warm=True, links={"same_zone": {"latency_ms": 20, "bandwidth_gbit_per_s": 0.05}})
    assert before is not None and before.ref == alone.known["plan"]
    replanned = compare(slow, before)
    assert replanned is not None and replanned.diff.gone == []
    assert replanned.diff.stays_s is not None and replanned.diff.stays_s >= replanned.diff.after_s * (1 - 1e-9)
    assert replanned.diff.restart_s is None, "nothing was ever deployed on it"


def test_a_plan_that_is_to_stay_near_is_found_again_by_a_run_that_does_not_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, _ = scheduled(tmp_path)
    links = {"same_zone": {"latency_ms": 0.2, "bandwidth_gbit_per_s": 8}}
    near, before = scheduled(tmp_path, stable=True, links=links)
    assert before is not None and before.ref == first.known["plan"]
    made = near.store.manifest(near.known["plan"])
    assert made.context == {"plan": [before.ref]} and made.parameters["prefer_stable"] is True
    moves = near.store.read(near.known["search"], Search).moves
    assert moves is not None and moves.horizon_iterations == 100 and moves.stays_s is not None
    plain, _ = scheduled(tmp_path, links=links)
    assert plain.known["plan"] == made.ref, "how it was found is not part of what it is"


def _kept(pipeline: Pipeline, replanned: Replanned) -> None:
    store = pipeline.store
    assert store.latest("replan") == replanned.ref and store.read(replanned.ref, PlanDiff) == replanned.diff
    assert store.read_bytes(replanned.ref, "plan_diff.md").decode() == replanned.markdown
    manifest = store.manifest(replanned.ref)
    assert manifest.inputs["plan"] == pipeline.known["plan"] == VersionRef(stage="schedule", version=replanned.diff.after.partition("@")[2])
    assert store.verify(replanned.ref) == []
