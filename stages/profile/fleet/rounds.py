"""Who is probed with whom, and when. Pure functions of names, places and time: the same fleet is always probed in the same order.

A round is a set of pairs that are probed at once. No machine is in two pairs of a round, so the number of rounds grows with the
machines, not with the pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Pair = tuple[str, str]
Round = tuple[Pair, ...]

SITE_LATENCY_S = 1e-3
"""Machines whose quickest message takes less than this one way are taken to be at one site."""
MAX_LATENCY_ROUNDS = 128
"""With more machines than this the latency too is probed for a part of the pairs only."""
START_S = 0.3
"""What starting a probe's process and asking for it costs, a direction."""
BANDWIDTH_ROUND_FACTOR = 2.0
"""A direction takes up to this many times the seconds it is given, over a long way."""


def tournament(names: Sequence[str]) -> list[Round]:
    """Every pair once, in n − 1 rounds (n for odd n): the circle method of round-robin tournaments."""
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = [(a, b) for a, b in zip(circle[:half], reversed(circle[half:]), strict=True) if a is not None and b is not None]
        rounds.append(tuple(pairs))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


def thinned(rounds: Sequence[Round], most: int) -> list[Round]:
    """At most ``most`` of the rounds, evenly spaced."""
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[i * len(rounds) // most] for i in range(most)]


def sites(names: Sequence[str], labels: Mapping[str, str], floor_s: Mapping[Pair, float]) -> dict[str, str]:
    """Machine → site. By its label where it has one, else by nearness: machines that reach each other, over others too, within
    ``SITE_LATENCY_S`` are at one site, called after the first of them. ``floor_s``: quickest message of a direction, where probed."""
    unlabelled = [n for n in names if not labels.get(n)]
    leader = {n: n for n in unlabelled}
    order = {n: i for i, n in enumerate(names)}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for a, b in combinations(unlabelled, 2):
        quickest = min((floor_s[p] for p in ((a, b), (b, a)) if p in floor_s), default=None)
        if quickest is not None and quickest < SITE_LATENCY_S:
            first, second = sorted((find(a), find(b)), key=order.__getitem__)
            leader[second] = first
    return {n: labels.get(n) or f"near {find(n)}" for n in names}


def sampled_rounds(names: Sequence[str], site: Mapping[str, str], *, most: int) -> list[Round]:
    """At most ``most`` rounds of pairs to measure the bandwidth of; all pairs where they fit.

    A site is in one pair with another site at a time, as its machines may share the way out; inside a site pairs of different machines
    run at once. Kinds of pairs (inside a site, between two) that were measured least come first, then machines measured least.
    """
    waiting = _candidates(names)
    by_kind: Counter[frozenset[str]] = Counter()
    by_machine: Counter[str] = Counter()
    rounds: list[Round] = []
    while waiting and len(rounds) < most:
        waiting.sort(key=lambda p: (by_kind[_kind(p, site)], by_machine[p[0]] + by_machine[p[1]]))
        busy: set[str] = set()
        busy_sites: set[str] = set()
        chosen: list[Pair] = []
        for pair in waiting:
            ends = {site[pair[0]], site[pair[1]]}
            if busy & set(pair) or (len(ends) == 2 and busy_sites & ends):
                continue
            chosen.append(pair)
            busy |= set(pair)
            busy_sites |= ends if len(ends) == 2 else set()
        for pair in chosen:
            by_kind[_kind(pair, site)] += 1
            by_machine.update(pair)
        taken = set(chosen)
        waiting = [p for p in waiting if p not in taken]
        rounds.append(tuple(chosen))
    return rounds


def _candidates(names: Sequence[str]) -> list[Pair]:
    """All pairs, or those of evenly spaced rounds of the tournament where there are very many."""
    return [pair for probed in thinned(tournament(names), MAX_LATENCY_ROUNDS) for pair in probed]


def _kind(pair: Pair, site: Mapping[str, str]) -> frozenset[str]:
    return frozenset((site[pair[0]], site[pair[1]]))


@dataclass(frozen=True)
class Budget:
    """Seconds of measuring a direction of a pair: its bandwidth, its latency alone; and seconds in all for the network."""

    bandwidth_s: float = 1.5
    latency_s: float = 0.3
    network_s: float = 200.0

    @property
    def latency_round_s(self) -> float:
        """Both directions at once."""
        return START_S + BANDWIDTH_ROUND_FACTOR * self.latency_s

    @property
    def bandwidth_round_s(self) -> float:
        """One direction after the other."""
        return 2 * (START_S + BANDWIDTH_ROUND_FACTOR * self.bandwidth_s)

    def bandwidth_rounds(self, latency_rounds: int) -> int:
        """How many rounds fit after so many of latency; at least a few, whatever the budget says."""
        return max(4, int((self.network_s - latency_rounds * self.latency_round_s) / self.bandwidth_round_s))

    def expected_s(self, latency_rounds: int, bandwidth_rounds: int) -> float:
        return latency_rounds * self.latency_round_s + bandwidth_rounds * self.bandwidth_round_s
