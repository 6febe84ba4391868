"""The placement map: every device in its machine and region, coloured by the group that uses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from artifacts.plan import Plan, Strategy
from artifacts.topology import Device, Machine, Topology
from artifacts.units import show_bytes
from artifacts.views.palette import GRID, MUTED, WARNING, GroupStyle, group_styles
from artifacts.views.svg import Svg, fit, text_width
from artifacts.views.text import clean, plural, tally, task_title

WIDTH = 1080.0
_PAD, _GAP, _HEAD = 8.0, 10.0, 36.0


@dataclass(frozen=True)
class _Scale:
    """Cell size in pixels and how many cells a machine has in a row."""

    width: float
    height: float
    columns: int
    detail: bool


def _scale(devices: int) -> _Scale:
    if devices <= 12:
        return _Scale(236, 62, 2, True)
    if devices <= 160:
        return _Scale(30, 26, 8, False)
    return _Scale(12, 13, 8, False)


def placement_map(topology: Topology, plan: Plan) -> Markup:
    """An inline SVG; each cell's tooltip says which device it is and which ranks it holds."""
    scale = _scale(len(topology.devices))
    styles = group_styles(plan)
    owner = {device: group.name for group in plan.groups for device in group.devices}
    ranks = rank_labels(plan)
    by_machine: dict[str, list[Device]] = defaultdict(list)
    for device in topology.devices:
        by_machine[device.machine].append(device)
    regions: dict[str, list[Machine]] = defaultdict(list)
    for machine in topology.machines:
        regions[machine.region].append(machine)

    placed, bottom = _layout(regions, by_machine, scale)
    legend = _legend_rows(topology, plan, styles)
    svg = Svg(
        WIDTH,
        bottom + 24 * len(legend) + 6 + (22 if topology.unreachable else 0),
        label="placement map: devices by machine and region, coloured by group",
    )
    for region, top in placed.regions:
        machines = regions[region]
        count = sum(len(by_machine[m.name]) for m in machines)
        name = fit(clean(region), WIDTH - 240, 14, bold=True)
        svg.text(0, top + 15, name, size=14, bold=True)
        svg.text(
            text_width(name, 14, bold=True) + 14 if name else 0,
            top + 15,
            f"{plural(len(machines), 'machine')}, {plural(count, 'device')}",
            fill=MUTED,
        )
        svg.line(0, top + 22, WIDTH, top + 22, stroke=GRID)
    for box in placed.boxes:
        devices = by_machine[box.machine.name]
        svg.rect(box.x, box.y, box.width, box.height, fill="#f8fafc", stroke="#cbd2d9", radius=5)
        svg.text(box.x + _PAD, box.y + 15, fit(clean(box.machine.name), box.width - 2 * _PAD, 11.5, bold=True), size=11.5, bold=True)
        zone = f", {clean(box.machine.zone)}" if box.machine.zone and scale.detail else ""
        kinds = (tally(d.device_class for d in devices) or "no device") + zone
        svg.text(box.x + _PAD, box.y + 28, fit(kinds, box.width - 2 * _PAD, 10.5), size=10.5, fill=MUTED)
        for index, device in enumerate(devices):
            x = box.x + _PAD + index % scale.columns * (scale.width + 2)
            y = box.y + _HEAD + index // scale.columns * (scale.height + 2)
            style = styles.get(owner.get(device.id, ""))
            _cell(svg, x, y, scale, device, style, ranks.get(device.id, []), plan.idle_devices.get(device.id, ""))
    y = bottom + 20
    for swatch, text in legend:
        if swatch is None:
            svg.hatch(0, y - 12, 18, 16)
            svg.text(9, y, "–", anchor="middle", fill=MUTED)
        else:
            svg.rect(0, y - 12, 18, 16, fill=swatch.fill, radius=2)
            svg.text(9, y, swatch.letter, anchor="middle", fill=swatch.text, bold=True)
        svg.text(28, y, fit(text, WIDTH - 30))
        y += 24
    if topology.unreachable:
        svg.text(0, y, fit("Not reached: " + ", ".join(clean(u.machine) for u in topology.unreachable), WIDTH), fill=WARNING)
    return svg.markup()


@dataclass(frozen=True)
class _Box:
    machine: Machine
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class _Placed:
    regions: list[tuple[str, float]]
    boxes: list[_Box]


def _layout(regions: dict[str, list[Machine]], by_machine: dict[str, list[Device]], scale: _Scale) -> tuple[_Placed, float]:
    """Machines in rows, region below region; returns the boxes and the bottom edge."""
    heads: list[tuple[str, float]] = []
    boxes: list[_Box] = []
    top = 0.0
    for region, machines in regions.items():
        heads.append((region, top))
        x, y, row_height = 0.0, top + 32, 0.0
        for machine in machines:
            count = max(1, len(by_machine[machine.name]))
            width = min(count, scale.columns) * (scale.width + 2) - 2 + 2 * _PAD
            width = max(width, 126.0)
            height = _HEAD + -(-count // scale.columns) * (scale.height + 2) - 2 + _PAD
            if x and x + width > WIDTH:
                x, y, row_height = 0.0, y + row_height + _GAP, 0.0
            boxes.append(_Box(machine, x, y, width, height))
            x, row_height = x + width + _GAP, max(row_height, height)
        top = y + row_height + 16
    return _Placed(heads, boxes), top


def _cell(
    svg: Svg, x: float, y: float, scale: _Scale, device: Device, style: GroupStyle | None, ranks: Sequence[str], why_idle: str
) -> None:
    duty = "; ".join(ranks) if ranks else ("in the group, no rank" if style else f"idle{': ' + clean(why_idle) if why_idle else ''}")
    title = (
        f"{device.id} · {clean(device.name)} ({device.device_class}), {show_bytes(device.memory_bytes)} · "
        f"{f'group {style.letter} ({style.name}): ' if style else ''}{duty}"
    )
    if style is None:
        svg.hatch(x, y, scale.width, scale.height, title=title)
    else:
        svg.rect(x, y, scale.width, scale.height, fill=style.fill, radius=2, title=title)
    ink = style.text if style else MUTED
    letter = style.letter if style else "–"
    if not scale.detail:
        size = 12 if scale.height > 20 else 9
        svg.text(x + scale.width / 2, y + scale.height / 2 + size * 0.36, letter, size=size, fill=ink, anchor="middle", bold=True)
        return
    room = scale.width - 16
    svg.text(x + 8, y + 18, fit(f"{letter} · {device.id}", room, 12.5, bold=True), size=12.5, fill=ink, bold=True)
    svg.text(x + 8, y + 35, fit(f"{clean(device.name)}, {show_bytes(device.memory_bytes)}", room, 11), size=11, fill=ink)
    tasks = sorted({r.split(" ")[0] for r in ranks})
    svg.text(x + 8, y + 51, fit(", ".join(task_title(t) for t in tasks) or clean(duty), room, 11), size=11, fill=ink)


def _legend_rows(topology: Topology, plan: Plan, styles: dict[str, GroupStyle]) -> list[tuple[GroupStyle | None, str]]:
    classes = {d.id: d.device_class for d in topology.devices}
    rows: list[tuple[GroupStyle | None, str]] = []
    for group in plan.groups:
        tasks = ", ".join(task_title(t) for t in group.tasks)
        kinds = tally(classes.get(d, "unknown") for d in group.devices)
        rows.append((styles[group.name], f"{tasks}: {plural(len(group.devices), 'device')} ({kinds})"))
    used = {d for g in plan.groups for d in g.devices}
    idle = [d.device_class for d in topology.devices if d.id not in used]
    if idle:
        rows.append((None, f"idle: {plural(len(idle), 'device')} ({tally(idle)})"))
    return rows


def rank_labels(plan: Plan) -> dict[str, list[str]]:
    """Device → what it holds, one entry a rank: ``rollout replica 0 stage 1 shard 0``."""
    labels: dict[str, list[str]] = defaultdict(list)
    for task, strategy in plan.tasks.items():
        for index, device in enumerate(strategy.ranks):
            labels[device].append(f"{task} {_place(strategy, index)}")
    return labels


def _place(strategy: Strategy, index: int) -> str:
    rest, shard = divmod(index, strategy.tp)
    replica, stage = divmod(rest, strategy.pp)
    parts = [f"replica {replica + 1} of {strategy.dp}"]
    if strategy.pp > 1:
        parts.append(f"stage {stage + 1} of {strategy.pp}")
    if strategy.tp > 1:
        parts.append(f"shard {shard + 1} of {strategy.tp}")
    return ", ".join(parts)
