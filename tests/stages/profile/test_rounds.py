"""The order of probes, as a pure function: who with whom, when, and how long it takes on 64 machines that are only simulated."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest

from stages.profile.fleet.findings import Findings, Linked, Listed, Looked, Lost, Rated, Said, Summed, cut_off, decode, encode
from stages.profile.fleet.links import Estimate, fleet_links
from stages.profile.fleet.nodes import Node, machine_nodes
from stages.profile.fleet.rounds import MAX_LATENCY_ROUNDS, Budget, Round, sampled_rounds, sites, thinned, tournament

FLEET = [f"m{i}" for i in range(64)]
REGION = {name: f"r{i // 8}" for i, name in enumerate(FLEET)}


def _pairs(rounds: list[Round]) -> list[frozenset[str]]:
    return [frozenset(pair) for probed in rounds for pair in probed]


def _disjoint(rounds: list[Round]) -> bool:
    return all(len({n for pair in probed for n in pair}) == 2 * len(probed) for probed in rounds)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 13, 64])
def test_a_tournament_has_every_pair_once_in_as_few_rounds_as_can_be(count: int) -> None:
    rounds = tournament(FLEET[:count])
    assert Counter(_pairs(rounds)) == Counter(frozenset(p) for p in combinations(FLEET[:count], 2))
    assert _disjoint(rounds) and len(rounds) == count - 1 + count % 2


def test_one_machine_plays_nobody() -> None:
    assert _pairs(tournament(["a"])) == [] and sampled_rounds(["a"], {"a": "x"}, most=5) == []


def test_all_pairs_of_a_small_fleet_are_measured_one_way_out_of_a_site_at_a_time() -> None:
    names = FLEET[:4] + FLEET[8:12]
    rounds = sampled_rounds(names, REGION, most=100)
    assert Counter(_pairs(rounds)) == Counter(frozenset(p) for p in combinations(names, 2))
    assert _disjoint(rounds)
    for probed in rounds:
        assert sum(REGION[a] != REGION[b] for a, b in probed) <= 1, "two regions, one way between them"


def test_64_machines_take_less_than_five_minutes_and_every_kind_of_pair_is_measured() -> None:
    budget = Budget()
    latency = tournament(FLEET)
    bandwidth = sampled_rounds(FLEET, REGION, most=budget.bandwidth_rounds(len(latency)))
    assert budget.expected_s(len(latency), len(bandwidth)) <= budget.network_s < 240, "what is left of five minutes is the devices'"
    assert _disjoint(bandwidth)
    kinds = Counter(frozenset(REGION[n] for n in pair) for pair in _pairs(bandwidth))
    assert len(kinds) == 8 + 28 and min(kinds.values()) >= 2
    machines = Counter(n for pair in _pairs(bandwidth) for n in pair)
    assert set(machines) == set(FLEET) and min(machines.values()) >= 4
    for probed in bandwidth:
        out = Counter(REGION[n] for a, b in probed if REGION[a] != REGION[b] for n in (a, b))
        assert max(out.values(), default=0) <= 1


@pytest.mark.parametrize("count", [3, 16, 64, 128, 400])
def test_any_number_of_machines_stays_in_the_budget_and_none_is_forgotten(count: int) -> None:
    budget, names = Budget(), [f"x{i}" for i in range(count)]
    latency = thinned(tournament(names), MAX_LATENCY_ROUNDS)
    bandwidth = sampled_rounds(names, dict.fromkeys(names, "one"), most=budget.bandwidth_rounds(len(latency)))
    assert budget.expected_s(len(latency), len(bandwidth)) <= budget.network_s
    assert {n for pair in _pairs(latency) for n in pair} == set(names) == {n for pair in _pairs(bandwidth) for n in pair}
    assert len(_pairs(bandwidth)) <= count * len(bandwidth) / 2


def test_latency_too_is_sampled_with_very_many_machines() -> None:
    many = [f"x{i}" for i in range(300)]
    rounds = thinned(tournament(many), MAX_LATENCY_ROUNDS)
    assert len(rounds) == MAX_LATENCY_ROUNDS and {n for pair in _pairs(rounds) for n in pair} == set(many)


def test_the_same_fleet_is_probed_in_the_same_order() -> None:
    assert sampled_rounds(FLEET, REGION, most=20) == sampled_rounds(list(FLEET), dict(REGION), most=20)


def test_sites_are_labels_or_found_by_nearness() -> None:
    floor = {("a", "b"): 2e-4, ("b", "c"): 9e-4, ("a", "c"): 1.2e-3, ("a", "d"): 2e-2, ("d", "e"): 3e-4}
    assert sites("abcde", {}, floor) == {"a": "near a", "b": "near a", "c": "near a", "d": "near d", "e": "near d"}
    assert sites("abcde", {"d": "west"}, floor)["d"] == "west"
    assert sites("ab", {}, {}) == {"a": "near a", "b": "near b"}, "never probed is not near"


def _simulated(noise: float, seed: int = 1) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """Measured and true B/s of every direction: a rate for every two regions, a slow network card in one machine, and noise."""
    rand = random.Random(seed)
    between = {frozenset(p): rand.uniform(1e8, 6e8) for p in combinations(sorted(set(REGION.values())), 2)}
    card = {n: 0.3 if n == "m5" else 1.0 for n in FLEET}
    true = {(a, b): (1.2e9 if REGION[a] == REGION[b] else between[frozenset((REGION[a], REGION[b]))]) * min(card[a], card[b])
            for a in FLEET for b in FLEET if a != b}
    rounds = sampled_rounds(FLEET, REGION, most=Budget().bandwidth_rounds(63))
    measured = {d: true[d] * rand.uniform(1 - noise, 1 + noise) for probed in rounds for a, b in probed for d in ((a, b), (b, a))}
    return measured, true


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_stated_error_of_sampling_is_the_real_one(noise: float) -> None:
    measured, true = _simulated(noise)
    estimate = Estimate(measured, REGION)
    unmeasured = [d for d in true if d not in measured]
    assert len(unmeasured) > 3000
    errors = sorted(abs(estimate.of(d) / true[d] - 1) for d in unmeasured)  # type: ignore[operator]
    stated = sorted(estimate.errors())
    assert errors[len(errors) // 2] <= stated[len(stated) // 2] + 0.02 and errors[-1] <= stated[-1] + 0.05
    slow = [d for d in unmeasured if "m5" in d]
    assert sorted(abs(estimate.of(d) / true[d] - 1) for d in slow)[len(slow) // 2] < 0.05 + noise  # type: ignore[operator]


def _findings(names: list[str], links: list[Linked], lost: dict[str, str] | None = None) -> Findings:
    findings = Findings()
    findings.add(Listed([Node(n, f"id-{n}", "10.0.0.1") for n in names], []))
    for link in links:
        findings.add(link)
    for name, why in (lost or {}).items():
        findings.add(Lost(name, why))
    return findings


def test_what_was_not_measured_is_assumed_with_its_error_and_what_failed_is_no_number() -> None:
    names = ["a", "b", "c", "d"]
    reached = [Linked(x, y, latency_s=1e-3, floor_s=9e-4) for x in names for y in names if x != y]
    rated = [Linked(x, y, latency_s=1e-3, floor_s=9e-4, bandwidth_bytes_per_s=1e8, spread=0.1) for x, y in (("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"))]
    findings = _findings(names, [*reached, *rated, Linked("a", "c", fault="ConnectionRefusedError")])
    links, notes = fleet_links(findings, dict.fromkeys(names, "x"))
    by_pair = {(k.source, k.target): k for k in links}
    assert ("a", "c") not in by_pair and any(n == "link a → c is left out: ConnectionRefusedError" for n in notes)
    assert (by_pair["a", "d"].provenance, by_pair["a", "d"].probe, by_pair["a", "d"].bandwidth_bytes_per_s) == ("assumed", "ok", 1e8)
    assert by_pair["a", "b"].provenance == "measured"
    assert any("measured in 4 of 12 directions" in n and "off by 0% (median), 0% (most)" in n for n in notes)


def test_nothing_is_made_up_where_nothing_like_it_was_measured() -> None:
    names = ["a", "b", "c"]
    findings = _findings(names, [Linked(x, y, latency_s=1e-2, floor_s=1e-2) for x in names for y in names if x != y])
    links, _ = fleet_links(findings, {n: n for n in names})
    assert links == []


def test_links_of_a_lost_machine_go_with_it() -> None:
    good = [Linked(x, y, latency_s=1e-3, floor_s=1e-3, bandwidth_bytes_per_s=1e8) for x in "abc" for y in "abc" if x != y]
    links, notes = fleet_links(_findings(["a", "b", "c"], good, {"c": "gone"}), dict.fromkeys("abc", "x"))
    assert {(k.source, k.target) for k in links} == {("a", "b"), ("b", "a")} and not any("c" in n.split() for n in notes)


def test_who_is_cut_off() -> None:
    def probes(*failed: str, names: str = "abcd") -> dict[tuple[str, str], str]:
        return {(x, y): "late" if x + y in failed else "" for x in names for y in names if x != y}

    assert cut_off("abcd", probes()) == {}
    assert cut_off("abcd", probes("ab")) == {}, "one bad direction is a bad link, not a bad machine"
    assert cut_off("abcd", probes("ca", "cb", "cd")) == {"c": "late (with a, b, d)"}
    assert set(cut_off("abcd", probes("ac", "bc", "dc", "ca", "cb", "cd"))) == {"c"}, "the others are not blamed for what they had with it"
    assert cut_off("abc", probes("ac", "ca", names="abc")) == {}, "b reaches both: it is the way between them that is bad"
    assert cut_off("ab", probes("ab", "ba", names="ab")) == {}, "of two, neither is to blame"
    assert set(cut_off("abcd", probes("ac", "ad", "bc", "bd", "ca", "cb", "da", "db"))) == set(), "two halves: nobody is alone"


def test_a_later_failure_stands_and_a_bandwidth_keeps_its_floor() -> None:
    findings = _findings(["a", "b"], [Linked("a", "b", latency_s=2e-3, floor_s=1e-3), Linked("a", "b", latency_s=1.5e-3, floor_s=1.2e-3, bandwidth_bytes_per_s=5e8)])
    merged = findings.links["a", "b"]
    assert (merged.latency_s, merged.floor_s, merged.bandwidth_bytes_per_s) == (1.5e-3, 1e-3, 5e8)
    findings.add(Linked("a", "b", fault="reset"))
    assert findings.links["a", "b"].bandwidth_bytes_per_s is None and findings.links["a", "b"].fault == "reset"


def test_events_survive_their_way_through_json() -> None:
    for event in (Listed([Node("a", "id", "10.0.0.1", devices=("a-0",))], ["n"]), Looked("a", 2, 1 << 30, [{"index": 0}], []),
                  Rated("a", {"0": {"rate": 1.0}}, {}), Linked("a", "b", latency_s=1.0), Summed(["a", "b"], {"a": 1}, {}), Lost("a", "why"), Said(1, 5, "x")):
        assert decode(encode(event)) == event


def _listed(address: str, *, host: str = "host", alive: bool = True, labels: dict[str, str] | None = None, **resources: float) -> dict[str, object]:
    return {"Alive": alive, "NodeID": f"id-{address}", "NodeManagerAddress": address, "NodeManagerHostname": host, "Labels": labels or {},
            "Resources": {"memory": 1e9, **{k.replace("__", ":"): v for k, v in resources.items()}}}


def test_nodes_are_machines_by_their_own_name_or_their_hosts() -> None:
    nodes, notes = machine_nodes([
        _listed("10.0.0.9", CPU=4, machine__big=1.0, labels={"ray.io/availability-region": "eu"}), _listed("10.0.0.2", CPU=4, host="twin"),
        _listed("10.0.0.3", CPU=4, host="twin"), _listed("10.0.0.4", alive=False, CPU=4), _listed("10.0.0.5", host="head")])
    assert [(n.name, n.region, n.named) for n in nodes] == [("big", "eu", True), ("twin-10.0.0.2", "", False), ("twin-10.0.0.3", "", False)]
    assert notes == ["Ray node head (10.0.0.5) declares no CPU, GPU or device: it stands for no machine"]


def test_declared_devices_are_in_the_order_people_count() -> None:
    declared = {f"device:a-{i}": 1.0 for i in (10, 9, 0)}
    nodes, _ = machine_nodes([{**_listed("10.0.0.1", CPU=4), "Resources": {"GPU": 3.0, **declared}}])
    assert nodes[0].devices == ("a-0", "a-9", "a-10") and nodes[0].gpus == 3
