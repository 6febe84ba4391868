"""How long a survey of 64 machines takes, on a clock that its probes move: every step of it, with agents that are stood in for.

A probe takes what the loops of the real one take over a link of that round trip and bandwidth; one that hangs takes its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from artifacts.topology import Link
from stages.profile.fleet import survey
from stages.profile.fleet.findings import Findings
from stages.profile.fleet.links import fleet_links
from stages.profile.fleet.nodes import Node
from stages.profile.fleet.rounds import Budget
from stages.profile.fleet.survey import Request, Survey, survey_sites
from stages.profile.probes.network import MIN_SAMPLES, PATIENCE, SIZES, WANTED_SAMPLES

MACHINES = [f"m{i}" for i in range(64)]
REGION = {name: i // 8 for i, name in enumerate(MACHINES)}
START_S, TORCH_S = 0.3, 8.0
FIVE_MINUTES_S = 300

Way = tuple[float, float]
"""Round trip (s) and B/s."""


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0


class Agents:
    """In place of the crew: what each agent would answer, all that are asked at once taking as long as the slowest."""

    def __init__(self, nodes: list[Node], *, on_lost: Callable[[str, str], None], clock: Clock, way: Callable[[str, str], Way],
                 hanging: frozenset[str]) -> None:
        self.nodes, self.lost, self._on_lost = {n.name: n for n in nodes}, {}, on_lost
        self._clock, self._way, self._hanging = clock, way, hanging

    @property
    def present(self) -> list[str]:
        return [name for name in self.nodes if name not in self.lost]

    def ask(self, calls: Iterable[tuple[str, str, Mapping[str, Any]]], *, within_s: float) -> list[dict[str, Any]]:
        took, answers = 0.0, []
        for name, what, given in calls:
            seconds, answer = getattr(self, f"_{what}")(name, **given)
            took = max(took, seconds)
            answers.append(answer)
        self._clock.now_s += took
        return answers

    def lose(self, name: str, why: str) -> None:
        if name not in self.lost:
            self.lost[name] = why
            self._on_lost(name, why)

    def close(self) -> None: ...

    def _look(self, name: str, **_: Any) -> tuple[float, dict[str, Any]]:
        devices = [{"index": i, "vendor": "nvidia", "name": "NVIDIA L4", "uuid": f"{name}-{i}", "memory_bytes": 24 << 30, "dtypes": ["bf16"]} for i in range(4)]
        return 2.0, {"cores": 32, "memory_bytes": 1 << 36, "devices": devices, "notes": []}

    def _measure(self, _: str, *, devices: list[Any], seconds: float) -> tuple[float, dict[str, Any]]:
        answer = {"engine": "torch", "granted": 1.0, "curve": [{"tokens": 64, "width": 64, "flops_per_s": 1e14, "spread": 0.0}]}
        return TORCH_S + seconds, {"answers": {str(d["index"]): answer for d in devices}, "faults": {}}

    def _reduce_inside(self, _: str, *, seconds: float, **__: Any) -> tuple[float, dict[str, Any]]:
        return TORCH_S + seconds, {"backend": "nccl", "bus_bytes_per_s": {}, "spread": 0.0, "wrong": False, "fault": ""}

    def _serve(self, name: str, **_: Any) -> tuple[float, dict[str, Any]]:
        return START_S, {"port": MACHINES.index(name)}

    def _connect(self, name: str, *, port: int, seconds: float, largest: int, deadline_s: float, **_: Any) -> tuple[float, dict[str, Any]]:
        target = MACHINES[port]
        if {name, target} & self._hanging:
            return deadline_s, {"fault": f"probe network did not answer within {deadline_s:.0f} s"}
        round_trip, rate = self._way(name, target)
        sizes = [size for size in SIZES if size <= largest]
        took = START_S + round_trip
        for number, size in enumerate(sizes):
            once, budget_s = round_trip + size / rate, seconds / len(sizes)
            if number > 2 and once > PATIENCE * budget_s:
                break
            took += once * (1 + max(MIN_SAMPLES, min(budget_s * PATIENCE / once, max(WANTED_SAMPLES, budget_s / once))))
        if took > deadline_s:
            return deadline_s, {"fault": f"probe network did not answer within {deadline_s:.0f} s"}
        return took, {"latency_s": round_trip / 2, "floor_s": round_trip / 2} | ({"bandwidth_bytes_per_s": rate, "spread": 0.0} if len(sizes) > 1 else {})

    def _join(self, _: str, **__: Any) -> tuple[float, dict[str, Any]]:
        return TORCH_S, {"port": 1}

    def _reduce(self, _: str, **__: Any) -> tuple[float, dict[str, Any]]:
        return 2.0, {"groups": [{"wrong": 0}]}


def surveyed(monkeypatch: pytest.MonkeyPatch, way: Callable[[str, str], Way], *, hanging: frozenset[str] = frozenset()) -> tuple[float, Findings]:
    clock = Clock()
    monkeypatch.setattr(survey, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(survey, "Crew", lambda nodes, *, on_lost: Agents(nodes, on_lost=on_lost, clock=clock, way=way, hanging=hanging))
    nodes = [Node(n, f"id-{n}", "10.0.0.1", region=f"r{REGION[n]}", gpus=4) for n in MACHINES]
    work = Survey(nodes, [], Request(budget=Budget()), emit=lambda _: None)
    work.run()
    return clock.now_s, work.findings


def ways(*, between_ms: float, mbit: float) -> Callable[[str, str], Way]:
    """10 Gbit/s inside a region; between two, a round trip and a bandwidth that grow with how far apart their numbers are."""
    def way(a: str, b: str) -> Way:
        apart = abs(REGION[a] - REGION[b])
        return (2e-4, 1.25e9) if apart == 0 else (between_ms * (0.5 + apart / 14) / 1e3, mbit * (1.5 - apart / 14) * 1e6 / 8)
    return way


CONTINENT, WORLD = ways(between_ms=30, mbit=3000), ways(between_ms=240, mbit=20)


@pytest.mark.parametrize("way", [CONTINENT, WORLD], ids=["a continent", "the world, by slow ways"])
def test_64_machines_take_less_than_five_minutes_and_every_link_is_there(monkeypatch: pytest.MonkeyPatch, way: Callable[[str, str], Way]) -> None:
    took_s, findings = surveyed(monkeypatch, way)
    assert took_s < FIVE_MINUTES_S and len(findings.present) == 64
    links, notes = fleet_links(findings, survey_sites(findings))
    assert len(links) == 64 * 64, "what was not measured is estimated"
    assert {n for k in links if k.provenance == "measured" and k.source != k.target for n in (k.source, k.target)} == set(MACHINES)
    assert any("directions, the others estimated from those; estimated without" in n for n in notes)
    assert max(_error(k, way) for k in links) <= max(_stated(notes)) + 0.01


def _error(link: Link, way: Callable[[str, str], Way]) -> float:
    rate = way(link.source, link.target)[1]
    return abs(link.bandwidth_bytes_per_s / rate - 1)


def _stated(notes: list[str]) -> list[float]:
    """The largest errors that the notes state."""
    return [float(n.rsplit("(median), ", 1)[1].split("%")[0]) / 100 for n in notes if n.endswith("(most)")]


@pytest.mark.parametrize("hanging", [1, 4])
def test_machines_that_hang_do_not_cost_a_deadline_a_round(monkeypatch: pytest.MonkeyPatch, hanging: int) -> None:
    took_s, findings = surveyed(monkeypatch, CONTINENT, hanging=frozenset(MACHINES[5::64 // hanging][:hanging]))
    assert len(findings.lost) == hanging and len(findings.present) == 64 - hanging
    assert took_s < FIVE_MINUTES_S
