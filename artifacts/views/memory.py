"""Memory of the devices against their capacity; classes are aggregated where there are many devices."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from markupsafe import Markup

from artifacts.plan import Plan
from artifacts.prediction import DeviceMemory, Prediction
from artifacts.topology import Topology
from artifacts.units import show_bytes
from artifacts.views.palette import FAINT, GRID, INK, MUTED, WARNING, group_styles
from artifacts.views.svg import Svg, fit
from artifacts.views.text import clean, percent, plural, task_title

WIDTH = 1080.0
_LABEL, _BARS, _ROW = 230.0, 430.0, 30.0
SHOW_EACH_UP_TO = 16


@dataclass(frozen=True)
class MemoryRow:
    """The fullest device of a set of like devices: same class, same group. ``lowest_peak_bytes`` is the emptiest one's."""

    label: str
    group: str
    device: str
    count: int
    memory: DeviceMemory
    lowest_peak_bytes: int


def memory_rows(topology: Topology, plan: Plan, prediction: Prediction) -> list[MemoryRow]:
    """A row a device up to 16 devices, beyond that a row a (group, class); the fullest stands for its set."""
    owner = {device: group.name for group in plan.groups for device in group.devices}
    classes = {d.id: d.device_class for d in topology.devices}
    each = len(prediction.memory) <= SHOW_EACH_UP_TO
    sets: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for device in prediction.memory:
        sets[(device,) if each else (owner.get(device, ""), classes.get(device, "unknown class"))].append(device)
    rows = []
    for key, devices in sets.items():
        fullest = max(devices, key=lambda d: (_fill(prediction.memory[d]), d))
        label = key[0] if each else f"{key[1]}, {plural(len(devices), 'device')}"
        rows.append(
            MemoryRow(
                label=label,
                group=owner.get(fullest, ""),
                device=fullest,
                count=len(devices),
                memory=prediction.memory[fullest],
                lowest_peak_bytes=min(prediction.memory[d].peak_bytes for d in devices),
            )
        )
    order = {g.name: i for i, g in enumerate(plan.groups)}
    return rows if each else sorted(rows, key=lambda r: (order.get(r.group, len(order)), r.label))


def fullest(prediction: Prediction) -> tuple[str, float] | None:
    """The device with the least room, and its peak over its capacity."""
    filled = {d: _fill(m) for d, m in prediction.memory.items()}
    device = max(filled, key=lambda d: (filled[d], d), default=None)
    return None if device is None else (device, filled[device])


def _fill(memory: DeviceMemory) -> float:
    return memory.peak_bytes / memory.capacity_bytes if memory.capacity_bytes else 0.0


def memory_bars(topology: Topology, plan: Plan, prediction: Prediction) -> Markup:
    """Solid: held all the time. Light: while the heaviest task runs. Outline: capacity; dashed line: what may be used."""
    rows = memory_rows(topology, plan, prediction)
    styles = group_styles(plan)
    svg = Svg(WIDTH, _ROW * len(rows) + 8, label="predicted peak memory by device against capacity")
    scale = _BARS / max([r.memory.capacity_bytes for r in rows] + [r.memory.peak_bytes for r in rows] + [1])
    for index, row in enumerate(rows):
        y = index * _ROW + 4
        style, memory = styles.get(row.group), row.memory
        svg.text(0, y + 16, fit(f"{style.letter if style else '–'} · {clean(row.label)}", _LABEL - 10))
        resident = sum(memory.resident.values()) * scale
        working = max(memory.working.values(), default=0) * scale
        svg.rect(
            _LABEL, y, memory.capacity_bytes * scale, 22, fill=GRID, stroke=FAINT, title=f"capacity {show_bytes(memory.capacity_bytes)}"
        )
        svg.rect(_LABEL, y, resident, 22, fill=style.fill if style else FAINT, title="held all the time: " + _parts(memory.resident))
        svg.rect(
            _LABEL + resident,
            y,
            working,
            22,
            fill=style.fill if style else FAINT,
            opacity=0.45,
            title="while a task runs: " + _parts(memory.working),
        )
        x = _LABEL + memory.usable_bytes * scale
        svg.line(
            x,
            y - 2,
            x,
            y + 24,
            stroke=WARNING if memory.peak_bytes > memory.usable_bytes else INK,
            width=1.5,
            dashed=True,
            title=f"usable {show_bytes(memory.usable_bytes)}",
        )
        svg.text(
            _LABEL + _BARS + 14,
            y + 16,
            fit(_caption(row), WIDTH - _LABEL - _BARS - 14, 11.5),
            size=11.5,
            fill=WARNING if memory.peak_bytes > memory.usable_bytes else MUTED,
        )
    return svg.markup()


def _caption(row: MemoryRow) -> str:
    memory = row.memory
    text = f"{show_bytes(memory.peak_bytes)} of {show_bytes(memory.capacity_bytes)} ({percent(_fill(memory))})"
    if row.count > 1 and row.lowest_peak_bytes != memory.peak_bytes:
        text += f", least {show_bytes(row.lowest_peak_bytes)}"
    if memory.working:
        heaviest = max(memory.working, key=lambda t: (memory.working[t], t))
        text += f"; peak in {task_title(heaviest)}"
    return text


def _parts(parts: dict[str, int]) -> str:
    return ", ".join(f"{clean(k).replace('_', ' ')} {show_bytes(v)}" for k, v in sorted(parts.items(), key=lambda kv: -kv[1])) or "nothing"
