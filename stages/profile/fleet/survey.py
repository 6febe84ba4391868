"""The order in which a cluster is probed: who is there, what devices do, who reaches whom, how fast, and whether sums are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from stages.profile.fleet.agent import Answer
from stages.profile.fleet.crew import Crew
from stages.profile.fleet.findings import Event, Findings, Linked, Listed, Looked, Lost, Rated, Reduced, Said, Summed, cut_off
from stages.profile.fleet.nodes import Node
from stages.profile.fleet.place import slow_devices
from stages.profile.fleet.rounds import MAX_LATENCY_ROUNDS, Budget, Pair, sampled_rounds, sites, thinned, tournament
from stages.profile.inside import SUM_S as INSIDE_S
from stages.profile.measure import START_S
from stages.profile.probes.network import MIN_SAMPLES, PATIENCE, SIZES

LOOK_S = 60.0
CONNECT_START_S = 8.0
JOIN_S, SUM_S = 60.0, 20.0
"""To load PyTorch, and to sum once all have."""
LEAST_ROUNDS = 4
"""Of bandwidth, however late it is."""
PAIR_ROUNDS = 8
"""When the all-reduce of all machines is wrong, pairs are tried in at most so many rounds to find out whose fault it is."""


@dataclass(frozen=True)
class Request:
    """``device_seconds`` for each device (all at once); ``shares``: CPU devices a machine that declares none; ``deadline_s``: of it all."""

    device_seconds: float = 4.5
    budget: Budget = field(default_factory=Budget)
    shares: int | None = None
    deadline_s: float = 600.0


class Survey:
    """Adds what it finds to ``findings``, and tells ``emit`` of it."""

    def __init__(self, nodes: Sequence[Node], notes: Sequence[str], request: Request, *, emit: Callable[[Event], None]) -> None:
        self.findings = Findings()
        self._request, self._emit = request, emit
        self._add(Listed(nodes=list(nodes), notes=list(notes)))
        self._crew = Crew(nodes, on_lost=lambda name, why: self._add(Lost(name, why)))
        self._ports: dict[str, int] = {}
        self._network_until = 0.0

    def run(self) -> None:
        try:
            steps = [("looking at {} machines", self._look), ("measuring the devices of {} machines", self._rate),
                     ("probing who of {} machines reaches whom", self._reach),
                     ("measuring bandwidths between {} machines", self._transfer), ("checking sums over {} machines", self._sum)]
            for number, (what, step) in enumerate(steps):
                self._emit(Said(number, len(steps), what.format(len(self._crew.present))))
                step()
            self._emit(Said(len(steps), len(steps), f"{len(self._crew.present)} machines surveyed"))
        finally:
            self._crew.close()

    def _add(self, event: Event) -> None:
        self.findings.add(event)
        self._emit(event)

    def _look(self) -> None:
        nodes = [self._crew.nodes[name] for name in self._crew.present]
        answers = self._crew.ask([(n.name, "look", {"identity": f"ray/{n.name}" if n.named else "",
                                                    "shares": len(n.devices) or self._request.shares}) for n in nodes], within_s=LOOK_S)
        for node, answer in zip(nodes, answers, strict=True):
            if "fault" not in answer:
                self._add(Looked(machine=node.name, cores=answer["cores"], memory_bytes=answer["memory_bytes"], devices=answer["devices"],
                                 notes=answer["notes"]))

    def _rate(self) -> None:
        self._measure(again=False)
        if slow_devices(self.findings, self.findings.first):
            self._measure(again=True)  # one interruption must not brand a device: a straggler is one that is slow twice
        several = [n for n in self._crew.present if len(self.findings.looked[n].devices) > 1]
        calls = [(n, "reduce_inside", {"devices": self.findings.looked[n].devices, "seconds": self._request.budget.bandwidth_s})
                 for n in several]
        within_s = START_S + INSIDE_S + 4 * self._request.budget.bandwidth_s
        for (name, _, _), answer in zip(calls, self._crew.ask(calls, within_s=within_s), strict=True):
            if name in self._crew.present:
                self._add(Reduced(machine=name, inside=answer))

    def _measure(self, *, again: bool) -> None:
        names = self._crew.present
        calls = [(n, "measure", {"devices": self.findings.looked[n].devices, "seconds": self._request.device_seconds}) for n in names]
        for name, answer in zip(names, self._crew.ask(calls, within_s=START_S + 4 * self._request.device_seconds), strict=True):
            if "fault" not in answer:
                self._add(Rated(machine=name, answers=answer["answers"], faults=answer["faults"], again=again))

    def _reach(self) -> None:
        self._network_until = monotonic() + self._request.budget.network_s
        names = self._crew.present
        for name, answer in zip(names, self._crew.ask([(n, "serve", {"deadline_s": self._request.deadline_s}) for n in names],
                                                      within_s=CONNECT_START_S), strict=True):
            if "port" in answer:
                self._ports[name] = answer["port"]
            elif name in self._crew.present:
                self._crew.lose(name, answer["fault"])
        budget = self._request.budget
        for pairs in thinned(tournament(self._crew.present), MAX_LATENCY_ROUNDS):
            self._connect([direction for a, b in pairs for direction in ((a, b), (b, a))], seconds=budget.latency_s, largest=SIZES[0])
            self._give_up()
        self._connect([(n, n) for n in self._crew.present], seconds=budget.bandwidth_s, largest=SIZES[-1])

    def _transfer(self) -> None:
        """As many rounds as were planned, or fit into the network's time where a round takes longer than usual (a long or a slow way)."""
        names, budget = self._crew.present, self._request.budget
        site = survey_sites(self.findings)
        latency_rounds = min(len(tournament(names)), MAX_LATENCY_ROUNDS)
        for number, pairs in enumerate(sampled_rounds(names, site, most=budget.bandwidth_rounds(latency_rounds))):
            if number >= LEAST_ROUNDS and monotonic() > self._network_until:
                break
            for directions in (list(pairs), [(b, a) for a, b in pairs]):
                self._connect(directions, seconds=budget.bandwidth_s, largest=SIZES[-1])
            self._give_up()

    def _connect(self, directions: Sequence[Pair], *, seconds: float, largest: int) -> None:
        """All at once; a direction that has failed before is not tried again, nor one with a machine that is lost."""
        def known_to_fail(pair: Pair) -> bool:
            return bool({*pair} & {*self._crew.lost}) or (pair in self.findings.links and bool(self.findings.links[pair].fault))

        tried = [pair for pair in directions if not known_to_fail(pair)]
        rates = largest > SIZES[0]  # then two sizes may each take their patience for every message
        deadline_s = CONNECT_START_S + PATIENCE * seconds * (2 * (MIN_SAMPLES + 1) / len(SIZES) if rates else 1)
        calls = [(a, "connect", {"address": self._crew.nodes[b].address, "port": self._ports[b], "seconds": seconds, "largest": largest,
                                 "deadline_s": deadline_s}) for a, b in tried]
        for (a, b), answer in zip(tried, self._crew.ask(calls, within_s=deadline_s), strict=True):
            if a in self._crew.lost:
                continue
            if "fault" in answer:
                self._add(Linked(a, b, fault=answer["fault"]))
            else:
                self._add(Linked(a, b, latency_s=answer["latency_s"], floor_s=answer["floor_s"],
                                 bandwidth_bytes_per_s=answer.get("bandwidth_bytes_per_s"), spread=answer.get("spread", 0.0)))

    def _give_up(self) -> None:
        """Machines that no other reaches cost a deadline a round: they are asked no more."""
        present = self._crew.present
        for name, why in cut_off(present, {pair: link.fault for pair, link in self.findings.links.items()}).items():
            self._crew.lose(name, why)

    def _sum(self) -> None:
        """All machines in one all-reduce; if it is wrong, pairs tell whose fault it is, and the others are tried again."""
        names = [n for n in self._crew.present if _has_torch(self.findings.rated.get(n))]
        if len(names) < 2 or self._reduce([names]):
            return
        for pairs in thinned(tournament([n for n in names if n in self._crew.present]), PAIR_ROUNDS):
            self._reduce([list(pair) for pair in pairs])
            summed = {(s.machines[i], s.machines[1 - i]): "" if s.right else s.why
                      for s in self.findings.sums if len(s.machines) == 2 for i in (0, 1)}
            for name, why in cut_off(self._crew.present, summed).items():
                self._crew.lose(name, why)
        left = [n for n in names if n in self._crew.present]
        if len(left) > 2 and len(left) < len(names):
            self._reduce([left])

    def _reduce(self, groups: Sequence[Sequence[str]]) -> bool:
        """All-reduces of disjoint groups of machines at once; whether all came out right."""
        groups = [[n for n in group if n in self._crew.present] for group in groups]
        groups = [group for group in groups if len(group) > 1]
        ranks = [(group, rank, name) for group in groups for rank, name in enumerate(group)]
        joined = self._crew.ask([(name, "join", {"rank": rank, "world": len(group), "master": self._crew.nodes[group[0]].address,
                                                 "deadline_s": JOIN_S + SUM_S}) for group, rank, name in ranks], within_s=JOIN_S)
        ready = {name: answer for (_, _, name), answer in zip(ranks, joined, strict=True)}
        reducing = [name for group, _, name in ranks if all("fault" not in ready[n] for n in group)]
        master = {name: group[0] for group, _, name in ranks}
        calls = [(n, "reduce", {"port": ready[master[n]]["port"], "deadline_s": SUM_S}) for n in reducing]
        summed = dict(zip(reducing, self._crew.ask(calls, within_s=SUM_S), strict=True))
        right = True
        for group in groups:
            outcome = _outcome(group, ready, summed)
            self._add(outcome)
            right = right and outcome.right
        return right


def _outcome(group: Sequence[str], ready: dict[str, Answer], summed: dict[str, Answer]) -> Summed:
    """Of a group that did not come together only those are at fault that did not join."""
    faults = {n: ready[n]["fault"] for n in group if "fault" in ready[n]}
    if not faults:
        faults = {n: summed[n]["fault"] for n in group if "fault" in summed[n]}
    wrong = {n: sum(g["wrong"] for g in summed[n]["groups"]) for n in group if "groups" in summed.get(n, {})}
    return Summed(machines=list(group), wrong={n: count for n, count in wrong.items() if count}, faults=faults)


def _has_torch(rated: Rated | None) -> bool:
    return rated is not None and any(str(a["engine"]).startswith("torch") for a in rated.answers.values())


def survey_sites(findings: Findings) -> dict[str, str]:
    """Machine → its site: region and zone as its node says, else by nearness."""
    labels = {n.name: "/".join(p for p in (n.region, n.zone) if p) for n in findings.nodes.values()}
    floors = {pair: link.floor_s for pair, link in findings.links.items() if link.floor_s is not None}
    return sites(findings.present, labels, floors)

