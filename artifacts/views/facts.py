"""What a report says in words and tables: headline figures, layouts, reasons, where numbers come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from artifacts.deployment import Deployment
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.throughput import Iteration, Throughput
from artifacts.topology import Measured, Topology
from artifacts.units import show_bytes, show_flops, show_rate, show_seconds
from artifacts.validation import Validation
from artifacts.views.memory import fullest
from artifacts.views.palette import group_styles
from artifacts.views.text import clean, listing, number, percent, plural, shares, tally, task_title


@dataclass(frozen=True)
class Figure:
    """A headline figure: what, how much, and a line of context. ``tone``: plain, good, bad."""

    label: str
    value: str
    note: str = ""
    tone: str = "plain"


@dataclass(frozen=True)
class Table:
    """Cells as text; ``numeric`` names the columns that are set flush right."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numeric: frozenset[int] = frozenset()


# -- headline figures ---------------------------------------------------------------------------------------------------
def plan_figures(topology: Topology, plan: Plan, prediction: Prediction, search: Search | None) -> list[Figure]:
    used = sum(len(g.devices) for g in plan.groups)
    idle = len(topology.devices) - used
    bound = max(prediction.bound_s, prediction.proved_bound_s or 0.0)
    figures = [
        Figure("Predicted iteration", show_seconds(prediction.iteration_time_s), f"{prediction.fidelity} cost model"),
        Figure("Predicted throughput", f"{number(prediction.throughput_samples_per_s)} samples/s"),
        Figure("Devices in use", f"{used:,} of {len(topology.devices):,}", f"{plural(idle, 'device')} idle" if idle else "none idle"),
    ]
    if bound > 0:
        kind = "proved bound" if (prediction.proved_bound_s or 0.0) >= prediction.bound_s else "roofline"
        figures.append(Figure("Above the bound", percent(prediction.gap), f"{kind}: {show_seconds(bound)}"))
    full = fullest(prediction)
    if full:
        figures.append(Figure("Fullest device", percent(full[1]), f"{full[0]}, of its memory"))
    if search:
        figures.append(
            Figure(
                "Search", f"{search.evaluations:,} plans", f"{show_seconds(search.seconds)}, {clean(search.solver)}: {clean(search.status)}"
            )
        )
    return figures


def run_figures(throughput: Throughput, validation: Validation) -> list[Figure]:
    whole, steps = validation.iteration, throughput.iterations
    good = validation.verdict == "ok"
    figures = [
        Figure(
            "Prediction",
            "holds" if good else "is off",
            f"error {percent(whole.error, signed=True)}, bound ±{percent(validation.bound)}",
            "good" if good else "bad",
        ),
        Figure(
            "Measured iteration",
            show_seconds(whole.measured_s),
            f"predicted {show_seconds(whole.predicted_s)}; median of {whole.iterations}",
        ),
    ]
    if steps:
        samples, tokens = (sum(x) / len(steps) for x in ([s.samples_per_s for s in steps], [s.tokens_per_s for s in steps]))
        figures.append(
            Figure(
                "Measured throughput",
                f"{number(samples)} samples/s",
                f"{number(tokens)} tokens/s, mean over {plural(len(steps), 'iteration')}",
            )
        )
    for label, attribute in (("Reward", "reward_mean"), ("Loss", "loss")):
        ends = first_and_last(steps, attribute)
        if ends:
            figures.append(Figure(f"{label}, first → last", f"{number(ends[0])} → {number(ends[1])}"))
    return figures


def first_and_last(steps: Sequence[Iteration], attribute: str) -> tuple[float, float] | None:
    """First and last reported value; None when it was never reported."""
    values = [v for v in (getattr(s, attribute) for s in steps) if v is not None]
    return (values[0], values[-1]) if values else None


# -- the plan ---------------------------------------------------------------------------------------------------------
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


# -- the search ---------------------------------------------------------------------------------------------------------
def arm_table(search: Search, *, limit: int = 12) -> Table:
    arms = sorted(search.arms, key=lambda a: (a.best_s is None, a.best_s or 0.0, a.name))[:limit]
    rows = [
        (clean(a.name), f"{a.evaluations:,}", str(a.rounds), "nothing feasible" if a.best_s is None else show_seconds(a.best_s))
        for a in arms
    ]
    return Table(("Arm", "Evaluations", "Rounds", "Best iteration"), rows, frozenset({1, 2, 3}))


def operator_table(search: Search) -> Table:
    rows = [(clean(o.name), f"{o.tried:,}", f"{o.improved:,}", percent(o.improved / o.tried) if o.tried else "–") for o in search.operators]
    return Table(("Operator", "Tried", "Improved", "Success"), rows, frozenset({1, 2, 3}))


# -- where numbers come from ----------------------------------------------------------------------------------------------
def class_table(topology: Topology) -> Table:
    """A row a device class: its rates, their range over the devices, and their provenance."""
    classes = defaultdict(list)
    for device in topology.devices:
        classes[device.device_class].append(device)
    rows = []
    for name, devices in sorted(classes.items()):
        rows.append(
            (
                clean(name),
                listing(sorted({d.name for d in devices}), limit=2),
                f"{len(devices):,}",
                show_bytes(min(d.memory_bytes for d in devices)),
                _rate([d.achieved_flops_per_s for d in devices], show_flops),
                _rate([d.memory_bandwidth_bytes_per_s for d in devices], show_rate),
            )
        )
    return Table(("Class", "Name", "Devices", "Memory", "Achieved compute", "Memory bandwidth"), rows, frozenset({2, 3}))


def _rate(values: Sequence[Measured], show: object) -> str:
    low, high = min(v.value for v in values), max(v.value for v in values)
    text = show(low) if high <= low * 1.005 else f"{show(low)} to {show(high)}"  # type: ignore[operator]
    return f"{text} ({', '.join(sorted({v.provenance for v in values}))})"


def link_table(topology: Topology) -> Table:
    """Links by kind of distance: how many, slowest to fastest, and their provenance."""
    place = {m.name: m for m in topology.machines}
    kinds = defaultdict(list)
    for link in topology.links:
        a, b = place[link.source], place[link.target]
        kind = (
            "1 inside a machine"
            if a is b
            else "4 between regions"
            if a.region != b.region
            else "3 between zones"
            if a.zone != b.zone
            else "2 between machines of a zone"
        )
        kinds[kind].append(link)
    rows = []
    for kind, links in sorted(kinds.items()):
        bandwidth = sorted(k.bandwidth_bytes_per_s for k in links)
        latency = sorted(k.latency_s for k in links)
        failed = sum(k.probe == "failed" for k in links)
        rows.append(
            (
                kind[2:],
                f"{len(links):,}" + (f", {failed:,} failed" if failed else ""),
                _range(bandwidth, show_rate),
                _range(latency, show_seconds),
                ", ".join(sorted({k.provenance for k in links})),
            )
        )
    return Table(("Links", "Directions", "Bandwidth", "Latency, one way", "From"), rows, frozenset({1}))


def _range(ordered: Sequence[float], show: object) -> str:
    low, high = show(ordered[0]), show(ordered[-1])  # type: ignore[operator]
    return low if low == high else f"{low} to {high}"


def provenance_table(prediction: Prediction) -> Table:
    by_source: dict[str, list[str]] = defaultdict(list)
    for quantity, source in prediction.provenance.items():
        by_source[source].append(quantity)
    rows = [(source, listing(quantities, limit=12)) for source, quantities in sorted(by_source.items())]
    return Table(("Source", "Quantities"), rows)


def identity_table(
    job: Job,
    topology: Topology,
    plan: Plan,
    prediction: Prediction,
    *,
    deployment: Deployment | None,
    throughput: Throughput | None,
    lineage: Mapping[str, str],
) -> Table:
    """What was made from what, and with which versions of which library."""
    rows = [(f"{name}", clean(version)) for name, version in lineage.items()]
    rows += [
        ("job (identity)", job.identity()[:16]),
        ("topology (fingerprint)", topology.fingerprint[:16]),
        ("plan (identity)", plan.identity()[:16]),
    ]
    if plan.solver:
        rows.append(("solver", clean(plan.solver)))
    rows.append(("calibration applied", clean(prediction.calibration) or "none"))
    if topology.cluster.reconstructed:
        rows.append(("cluster", f"{topology.cluster.name}: reconstructed from published ranges, not measured"))
    if throughput:
        rows.append(("engine", clean(throughput.header.engine) + (" (simulated)" if throughput.header.simulated else "")))
        rows.append(("seed", str(throughput.header.seed)))
    versions = {**(deployment.versions if deployment else {}), **(throughput.header.versions if throughput else {})}
    rows += [(clean(k), clean(v)) for k, v in sorted(versions.items())]
    rows += [(f"image {clean(k)}", clean(v)) for k, v in sorted((deployment.image_digests if deployment else {}).items())]
    return Table(("What", "Version"), rows)


def error_table(validation: Validation) -> Table:
    rows = [_error_row("whole iteration", validation.iteration)]
    rows += [_error_row(task_title(r.task), r) for r in validation.rows]
    return Table(("Task", "Device class", "Predicted", "Measured", "Spread", "Iterations", "Error"), rows, frozenset({2, 3, 4, 5, 6}))


def _error_row(title: str, row: object) -> tuple[str, ...]:
    r = row
    return (
        title,
        clean(r.device_class),
        show_seconds(r.predicted_s),
        show_seconds(r.measured_s),
        percent(r.measured_spread),
        str(r.iterations),  # type: ignore[attr-defined]
        percent(r.error, signed=True),
    )  # type: ignore[attr-defined]


def rank_table(deployment: Deployment, *, limit: int = 64) -> Table:
    """Ranks as the processes that hold them proved it; the first ones where there are many."""
    ranks = sorted(deployment.ranks, key=lambda r: (r.task, r.rank))
    rows = [(task_title(r.task), str(r.rank), clean(r.machine), clean(r.device), clean(r.device_uuid)) for r in ranks[:limit]]
    if len(ranks) > limit:
        rows.append((f"and {len(ranks) - limit:,} more", "", "", "", ""))
    return Table(("Task", "Rank", "Machine", "Device", "UUID found"), rows, frozenset({1}))
