"""Links of a fleet from what was probed, and an estimate with a stated error for those whose bandwidth was not."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations

from artifacts.topology import Link
from stages.profile.fleet.findings import Findings, Linked, Pair
from stages.profile.inside import Inside, inside_link


def fleet_links(findings: Findings, site: Mapping[str, str]) -> tuple[list[Link], list[str]]:
    """Links between the machines that are present, and a line for each that failed or was estimated.

    A direction whose probe failed has no link, as nothing is known of it; one whose all-reduce was wrong has one that says so.
    """
    links, notes = [], []
    bad = findings.bad_pairs()
    probed = {p: k for p, k in findings.links.items() if not {*p} & {*findings.lost}}
    measured = {p: k.bandwidth_bytes_per_s for p, k in probed.items() if p[0] != p[1] and not k.fault and k.bandwidth_bytes_per_s}
    reached = {p: k.latency_s for p, k in probed.items() if p[0] != p[1] and not k.fault and k.latency_s is not None}
    latencies = _class_medians(reached, site)
    estimate = Estimate(measured, site)
    names = findings.present
    for pair in [*((n, n) for n in names), *permutations(names, 2)]:
        link, known = _measured(probed.get(pair)), probed.get(pair)
        if known is not None and known.fault:
            notes.append(f"link {pair[0]} → {pair[1]} is left out: {known.fault}")
        elif link is None and pair[0] != pair[1] and (rate := estimate.of(pair)) is not None:
            latency = reached.get(pair, latencies.get(_kind(pair, site)))
            if latency is not None:
                link = Link(source=pair[0], target=pair[1], latency_s=latency, bandwidth_bytes_per_s=rate, provenance="assumed",
                            probe="ok" if pair in reached else "not probed")
        elif link is None and pair[0] == pair[1] and len(names) > 1:
            notes.append(f"the link inside {pair[0]} was not measured")
        if link is not None and pair[0] == pair[1]:
            link = inside_link(link, findings.inside.get(pair[0], Inside()))
        if link is not None:
            links.append(link.model_copy(update={"probe": "failed"}) if frozenset(pair) in bad else link)
    notes += [f"link {' ↔ '.join(sorted(pair))} must not be used: {why}" for pair, why in bad.items() if not pair & {*findings.lost}]
    return links, [*notes, *_sampling(estimate, len(measured), list(permutations(names, 2)))]


def _measured(known: Linked | None) -> Link | None:
    if known is None or known.fault or known.latency_s is None or not known.bandwidth_bytes_per_s:
        return None
    return Link(source=known.source, target=known.target, latency_s=known.latency_s, provenance="measured", probe="ok",
                bandwidth_bytes_per_s=known.bandwidth_bytes_per_s)


def _sampling(estimate: Estimate, measured: int, directions: Sequence[Pair]) -> list[str]:
    if measured >= len(directions) or not measured:
        return []
    notes = [f"bandwidth measured in {measured} of {len(directions)} directions, the others estimated from those; "
             + _stated(estimate.errors(), "its own measurement")]
    if borrowed := sum(estimate.borrowed(pair) for pair in directions):
        notes.append(f"{borrowed} of them are between sites of which no pair was measured; "
                     + _stated(estimate.errors(borrowed=True), "any of its two sites'"))
    return notes


def _stated(errors: Sequence[float], without: str) -> str:
    if not errors:
        return "their error is unknown"
    middle, most = statistics.median(errors), max(errors)
    return f"estimated without {without}, a measured one is off by {middle:.0%} (median), {most:.0%} (most)"


class Estimate:
    """The bandwidth of a direction by its class and its ends: the median of the class (site to site; the nearest class where nothing of
    its own was measured) times how the slower of the two ends does against the medians of the classes it was measured in."""

    def __init__(self, measured: Mapping[Pair, float], site: Mapping[str, str]) -> None:
        self._measured, self._site = measured, site
        self._medians = _class_medians(measured, site)
        self._classes: dict[Pair, list[Pair]] = defaultdict(list)
        self._ends: dict[tuple[int, str], list[Pair]] = defaultdict(list)
        for pair in measured:
            self._classes[_kind(pair, site)].append(pair)
            for end in (0, 1):
                self._ends[end, pair[end]].append(pair)

    def of(self, pair: Pair) -> float | None:
        """B/s; None where nothing of its class was measured."""
        return self._measured.get(pair) or self._without(pair)

    def borrowed(self, pair: Pair) -> bool:
        """Whether nothing of its own class was measured."""
        return _kind(pair, self._site) not in self._classes

    def errors(self, *, borrowed: bool = False) -> list[float]:
        """How far off each measured direction would be, had it (``borrowed``: had its whole class) not been measured itself."""
        guesses = ((value, self._without(pair, borrowed=borrowed)) for pair, value in self._measured.items())
        return [abs(guess - value) / value for value, guess in guesses if guess is not None]

    def _without(self, pair: Pair, *, borrowed: bool = False) -> float | None:
        """From the measurements of other directions (``borrowed``: of other classes) only."""
        kind = _kind(pair, self._site)
        peers = self._peers(pair, borrowed=borrowed)
        if not peers:
            return None
        medians = {**self._medians, kind: statistics.median(peers)}
        ends = []
        for end in (0, 1):
            factors = [self._measured[p] / medians[_kind(p, self._site)] for p in self._ends[end, pair[end]] if p != pair]
            ends.append(statistics.median(factors) if factors else 1.0)
        return statistics.median(peers) * min(ends)

    def _peers(self, pair: Pair, *, borrowed: bool) -> list[float]:
        """Of its class; where none was measured, of all between sites, or inside one."""
        kind = _kind(pair, self._site)
        alike = [k for k in self._classes if k != kind and (k[0] == k[1]) == (kind[0] == kind[1])]
        for kinds in (alike,) if borrowed else ((kind,), alike):
            peers = [self._measured[p] for k in kinds for p in self._classes.get(k, []) if p != pair]
            if peers:
                return peers
        return []


def _class_medians(values: Mapping[Pair, float], site: Mapping[str, str]) -> dict[Pair, float]:
    groups: dict[Pair, list[float]] = defaultdict(list)
    for pair, value in values.items():
        groups[_kind(pair, site)].append(value)
    return {kind: statistics.median(group) for kind, group in groups.items()}


def _kind(pair: Pair, site: Mapping[str, str]) -> Pair:
    """Of a direction: from which site to which."""
    return site[pair[0]], site[pair[1]]
