"""Strings that try to be more than text, and documents full of them."""

from __future__ import annotations

from typing import Any

from artifacts.topology import Unreachable
from tests.artifacts.views.view_samples import Sample

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror="alert(1)">',
    "</title></style></svg><iframe>",
    "{{ 7 * 7 }}{% raw %}",
    "a | b [click](javascript:alert(1)) `x` **y** ![i](http://e.vil/x.png)",
    "$\\frac{1}{0}$ $x",
    "\x1b[31mred\x1b[0m\x00\u202e",
    "[bold red]markup[/] [link=http://e.vil]x[/link]",
]


def _with(model: Any, **fields: Any) -> Any:
    return model.model_copy(update=fields)


def poisoned(s: Sample, text: str) -> Sample:
    """The sample with ``text`` in every string a document does not restrict."""
    topology = _with(
        s.topology,
        machines=[_with(m, region=text, zone=text) for m in s.topology.machines],
        devices=[_with(d, name=text, uuid=text) for d in s.topology.devices],
        unreachable=[Unreachable(machine="gone", reason=text)],
        cluster=_with(s.topology.cluster, address=text),
    )
    idle = s.topology.devices[-1].id
    groups = [_with(g, reason=text) for g in s.plan.groups]
    plan = _with(s.plan, groups=groups, reasons=[text], solver=text, idle_devices={idle: text})
    prediction = _with(
        s.prediction,
        other_s={text: 0.1},
        provenance={text: "measured"},
        calibration=text,
        tasks={k: _with(t, terms={text: 1.0}) for k, t in s.prediction.tasks.items()},
        memory={k: _with(m, resident={text: 1000}, working={text: 1000}) for k, m in s.prediction.memory.items()},
    )
    search = _with(
        s.search,
        solver=text,
        status=text,
        arms=[_with(a, name=text) for a in s.search.arms],
        operators=[_with(o, name=text) for o in s.search.operators],
    )
    deployment = _with(
        s.deployment, versions={text: text}, image_digests={text: text}, ranks=[_with(r, device_uuid=text) for r in s.deployment.ranks]
    )
    throughput = _with(
        s.throughput,
        header=_with(s.throughput.header, engine=text, versions={text: text}),
        iterations=[_with(i, by_task_s={**i.by_task_s, text: 0.1}) for i in s.throughput.iterations],
    )
    rows = [_with(r, task=text, device_class=text) for r in s.validation.rows]
    validation = _with(
        s.validation, rows=rows, notes=[text], suspect=text, verdict="off", trend=[_with(t, version=text) for t in s.validation.trend]
    )
    return Sample(s.job, topology, plan, prediction, search, deployment, throughput, validation)
