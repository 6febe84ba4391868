"""What a survey finds out, one event at a time, so that what is known when it ends early is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stages.profile.fleet.nodes import Node
from stages.profile.inside import Inside

Pair = tuple[str, str]


@dataclass(frozen=True)
class Looked:
    """A machine whose agent answered; ``devices`` are ``FoundDevice`` as dictionaries."""

    machine: str
    cores: int
    memory_bytes: int
    devices: list[dict[str, Any]]
    notes: list[str]


@dataclass(frozen=True)
class Rated:
    """Answers and faults of a machine's device probes, by the device's index. ``again``: a second look, as some seemed slow."""

    machine: str
    answers: dict[str, dict[str, Any]]
    faults: dict[str, str]
    again: bool = False


@dataclass(frozen=True)
class Reduced:
    """The all-reduce among a machine's own devices, as the fields of ``Inside`` (JSON's keys are texts)."""

    machine: str
    inside: dict[str, Any]

    @property
    def result(self) -> Inside:
        return Inside(**{**self.inside, "bus_bytes_per_s": {int(n): rate for n, rate in self.inside["bus_bytes_per_s"].items()}})


@dataclass(frozen=True)
class Linked:
    """One direction of a pair, or (``source == target``) inside a machine. With a ``fault`` nothing else is known."""

    source: str
    target: str
    latency_s: float | None = None
    floor_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    spread: float = 0.0
    fault: str = ""


@dataclass(frozen=True)
class Summed:
    """An all-reduce of ``machines``: who got a wrong sum (how many elements), who none (why)."""

    machines: list[str]
    wrong: dict[str, int]
    faults: dict[str, str]

    @property
    def right(self) -> bool:
        return not self.wrong and not self.faults

    @property
    def why(self) -> str:
        if self.wrong:
            return "wrong all-reduce sum on " + ", ".join(sorted(self.wrong))
        return "no all-reduce: " + "; ".join(f"{name}: {fault}" for name, fault in sorted(self.faults.items()))


@dataclass(frozen=True)
class Lost:
    """A machine that is asked no more."""

    machine: str
    why: str


@dataclass(frozen=True)
class Listed:
    """The machines of the cluster: the first event."""

    nodes: list[Node]
    notes: list[str]


@dataclass(frozen=True)
class Said:
    """Progress, for the person."""

    done: float
    total: float
    message: str


Event = Looked | Rated | Reduced | Linked | Summed | Lost | Listed | Said
_EVENTS: dict[str, type[Any]] = {cls.__name__: cls for cls in (Looked, Rated, Reduced, Linked, Summed, Lost, Listed, Said)}


def encode(event: Event) -> dict[str, Any]:
    return {"event": type(event).__name__, **asdict(event)}


def decode(data: Mapping[str, Any]) -> Event:
    fields = {k: v for k, v in data.items() if k != "event"}
    if data["event"] == "Listed":
        fields["nodes"] = [Node(**{**n, "devices": tuple(n["devices"])}) for n in fields["nodes"]]
    event: Event = _EVENTS[data["event"]](**fields)
    return event


@dataclass
class Findings:
    """All that is known so far. ``first`` holds the device rates before a second look."""

    nodes: dict[str, Node] = field(default_factory=dict)
    looked: dict[str, Looked] = field(default_factory=dict)
    first: dict[str, Rated] = field(default_factory=dict)
    rated: dict[str, Rated] = field(default_factory=dict)
    inside: dict[str, Inside] = field(default_factory=dict)
    links: dict[Pair, Linked] = field(default_factory=dict)
    sums: list[Summed] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, event: Event) -> None:
        match event:
            case Listed():
                self.nodes = {n.name: n for n in event.nodes}
                self.notes += event.notes
            case Looked():
                self.looked[event.machine] = event
                self.notes += [f"{event.machine}: {note}" for note in event.notes]
            case Rated():
                if not event.again:
                    self.first[event.machine] = event
                self.rated[event.machine] = event
            case Reduced():
                self.inside[event.machine] = event.result
            case Linked():
                self.links[event.source, event.target] = self._merged(event)
            case Summed():
                self.sums.append(event)
            case Lost():
                self.lost.setdefault(event.machine, event.why)
            case Said():
                pass

    def _merged(self, new: Linked) -> Linked:
        """A failure stands, though an earlier probe worked; a bandwidth goes to the latency that is known, and takes its floor."""
        known = self.links.get((new.source, new.target))
        if new.fault or known is None:
            return new
        floors = [x for x in (known.floor_s, new.floor_s) if x is not None]
        latencies = [x for x in (known.latency_s, new.latency_s) if x is not None]
        return Linked(new.source, new.target, latency_s=min(latencies, default=None), floor_s=min(floors, default=None),
                      bandwidth_bytes_per_s=new.bandwidth_bytes_per_s or known.bandwidth_bytes_per_s, spread=new.spread or known.spread)

    @property
    def present(self) -> list[str]:
        return [name for name in self.nodes if name not in self.lost]

    def bad_pairs(self) -> dict[frozenset[str], str]:
        """Pairs of machines whose all-reduce did not come out right, and why."""
        return {frozenset(s.machines): s.why for s in self.sums if len(s.machines) == 2 and not s.right}


def cut_off(names: Iterable[str], probed: Mapping[Pair, str]) -> dict[str, str]:
    """Machines that none of at least two others reach, or that reach none of them, and why. ``probed``: direction → its fault, or "".

    The machine with the most failures goes first, and its failures with it: the others must not be blamed for them.
    """
    present = set(names)
    found: dict[str, str] = {}
    while True:
        failures: dict[str, list[tuple[str, str]]] = {}
        for name in sorted(present):
            failed = [*_all_failed(name, probed, present, 0), *_all_failed(name, probed, present, 1)]
            if failed:
                failures[name] = failed
        if not failures:
            return found
        worst = max(failures, key=lambda name: len(failures[name]))
        reasons: dict[str, list[str]] = defaultdict(list)
        for peer, fault in failures[worst]:
            if peer not in reasons[fault]:
                reasons[fault].append(peer)
        found[worst] = "; ".join(f"{fault} (with {', '.join(sorted(peers)[:4])}{' and others' if len(peers) > 4 else ''})"
                                 for fault, peers in list(reasons.items())[:2])
        present.discard(worst)


def _all_failed(name: str, probed: Mapping[Pair, str], present: set[str], end: int) -> list[tuple[str, str]]:
    """(other machine, fault) of the directions that start (``end`` 0) or end (1) at the machine, if all of two or more failed."""
    directions = [(pair[1 - end], fault) for pair, fault in probed.items()
                  if pair[end] == name and pair[0] != pair[1] and pair[1 - end] in present]
    return directions if len(directions) >= 2 and all(fault for _, fault in directions) else []
