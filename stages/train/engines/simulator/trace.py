"""The timeline as Chrome trace events: one row a device, grouped by machine. Opens in Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

import json
from typing import Any

from artifacts.topology import Topology
from stages.train.engines.simulator.graph import Played
from stages.train.engines.simulator.iteration import Iterations

MOST_EVENTS = 200_000
"""Beyond this a row shows tasks instead of passes: viewers grow slow."""


def chrome_trace(topology: Topology, made: Iterations, played: Played) -> str:
    """JSON text; times in microseconds from the start."""
    graph = made.graph
    shown = [i for i in range(len(graph.labels)) if played.end[i] > played.start[i]]
    if sum(len(graph.devices[i]) for i in shown) > MOST_EVENTS:
        spans = _by_task(made, played, shown)
    else:
        spans = [(d, f"{graph.labels[i].task}: {graph.labels[i].what}", i, float(played.start[i]), float(played.end[i]))
                 for i in shown for d in graph.devices[i]]
    machines = {m.name: n for n, m in enumerate(topology.machines)}
    place = [machines[d.machine] for d in topology.devices]
    used = sorted({d for d, *_ in spans})
    events: list[dict[str, Any]] = [_name("process_name", place[d], topology.devices[d].machine) for d in used]
    events += [_name("thread_name", place[d], f"{topology.devices[d].id} ({topology.devices[d].device_class})", tid=d) for d in used]
    events += [
        {"ph": "X", "name": name, "cat": graph.labels[i].task, "pid": place[d], "tid": d, "ts": round(start * 1e6, 3),
         "dur": round((end - start) * 1e6, 3), "args": {"batch": graph.labels[i].batch, "replica": graph.labels[i].replica}}
        for d, name, i, start, end in spans
    ]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))


def _by_task(made: Iterations, played: Played, shown: list[int]) -> list[tuple[int, str, int, float, float]]:
    found: dict[tuple[int, str, int], list[Any]] = {}
    for i in shown:
        label = made.graph.labels[i]
        for d in made.graph.devices[i]:
            span = found.setdefault((d, label.task, label.batch), [i, float(played.start[i]), 0.0])
            span[2] = max(span[2], float(played.end[i]))
    return [(d, task, i, start, end) for (d, task, _), (i, start, end) in found.items()]


def _name(kind: str, pid: int, name: str, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
