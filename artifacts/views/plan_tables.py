"""The plan in tables: groups, layouts, idle devices, where the predicted time goes."""

from __future__ import annotations

from collections import defaultdict

from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.topology import Topology
from artifacts.units import show_seconds
from artifacts.views.palette import group_styles
from artifacts.views.tables import Table
from artifacts.views.text import clean, listing, shares, tally, task_title


def group_table(topology: Topology, plan: Plan) -> Table:
    machine_of = {d.id: d.machine for d in topology.devices}
    class_of = {d.id: d.device_class for d in topology.devices}
    styles = group_styles(plan)
    rows = []
    for group in plan.groups:
        machines = sorted({machine_of.get(d, "unknown machine") for d in group.devices})
        devices = listing(group.devices) if len(group.devices) <= 4 else tally(class_of.get(d, "unknown") for d in group.devices)
        rows.append(
            (
                f"{styles[group.name].letter} · {clean(group.name)}",
                ", ".join(task_title(t) for t in group.tasks),
                devices,
                f"{len(machines)}: {listing(machines, limit=3)}" if len(machines) > 1 else listing(machines),
                clean(group.reason, limit=600),
            )
        )
    return Table(("Group", "Tasks", "Devices", "Machines", "Why"), rows)


def strategy_table(plan: Plan) -> Table:
    styles = group_styles(plan)
    rows = []
    for task, s in plan.tasks.items():
        rows.append(
            (
                task_title(task),
                styles[plan.group_of(task).name].letter,
                str(s.dp),
                str(s.pp),
                str(s.tp),
                shares(s.layers),
                shares(s.local_batch_sequences),
                str(s.micro_batch_sequences),
            )
        )
    return Table(
        ("Task", "Group", "Replicas (dp)", "Stages (pp)", "Shards (tp)", "Layers by stage", "Sequences by replica", "Micro-batch"),
        rows,
        frozenset({2, 3, 4, 7}),
    )


def idle_reasons(plan: Plan) -> list[tuple[str, str]]:
    """(devices, why), one entry a reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for device, reason in plan.idle_devices.items():
        by_reason[reason].append(device)
    return [(listing(devices, limit=6), clean(reason, limit=600) or "no reason given") for reason, devices in by_reason.items()]


def time_table(prediction: Prediction) -> Table:
    """Where the predicted time goes: a row a task, its terms from large to small."""
    rows = []
    for task, t in prediction.tasks.items():
        terms = ", ".join(f"{clean(k)} {show_seconds(v)}" for k, v in sorted(t.terms.items(), key=lambda kv: -kv[1]) if v > 0)
        rows.append((task_title(task), show_seconds(t.start_s) if t.start_s else "0 s", show_seconds(t.time_s), terms))
    rows += [(task_title(name), "", show_seconds(seconds), "beside the tasks") for name, seconds in prediction.other_s.items()]
    return Table(("Task", "Starts at", "Takes", "Of which"), rows, frozenset({1, 2}))


def sensitivity_table(prediction: Prediction, *, limit: int = 12) -> Table:
    """What a tenth more of each input does to the iteration, the strongest first."""
    strongest = sorted(prediction.sensitivity.items(), key=lambda item: -abs(item[1]))[:limit]
    rows = [(clean(name), f"{change:+.1%}", "faster" if change < 0 else "slower") for name, change in strongest]
    return Table(("A tenth more of", "Iteration time", ""), rows, frozenset({1}))
