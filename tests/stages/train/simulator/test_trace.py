"""The timeline file, as a viewer of Chrome traces reads it."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from stages.train.engines.simulator import trace
from tests.stages.train.simulator.test_iteration import FLEET, case


def events(*, mode: str = "sync") -> list[dict[str, Any]]:
    c = case("ppo", mode, 2)
    return json.loads(trace.chrome_trace(FLEET, c.made, c.played))["traceEvents"]  # type: ignore[no-any-return]


def test_a_row_a_device_grouped_by_machine() -> None:
    found = events()
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["ph"] == "M" and e["name"] == "thread_name"}
    machines = {e["pid"]: e["args"]["name"] for e in found if e["ph"] == "M" and e["name"] == "process_name"}
    for (pid, tid), name in rows.items():
        device = FLEET.devices[tid]
        assert name == f"{device.id} ({device.device_class})" and machines[pid] == device.machine
    assert {(e["pid"], e["tid"]) for e in found if e["ph"] == "X"} == set(rows)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_spans_of_a_row_do_not_overlap_and_cover_the_run(mode: str) -> None:
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for e in events(mode=mode):
        if e["ph"] == "X":
            assert e["dur"] > 0 and e["name"].startswith(e["cat"])
            spans[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for row in spans.values():
        assert all(b[0] >= a[1] - 0.01 for a, b in pairwise(sorted(row)))
    last = max(end for row in spans.values() for _, end in row)
    assert last == pytest.approx(case("ppo", mode, 2).played.end.max() * 1e6, rel=1e-6)


def test_a_long_run_shows_tasks_instead_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_EVENTS", 10)
    names = {e["name"] for e in events() if e["ph"] == "X"}
    assert names == {"rollout", "actor_log_prob", "reference_inference", "critic_inference", "actor_training", "critic_training", "weight_update"}
