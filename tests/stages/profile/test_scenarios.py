"""The published settings: what was printed about them must hold of their reconstruction."""

from __future__ import annotations

from collections import Counter

import pytest

from artifacts.catalog.regions import delay_between, region_data
from artifacts.errors import InputError
from artifacts.topology import Link, Topology
from stages.profile.basis import anchored
from stages.profile.inventory import build, read_inventory
from stages.profile.scenarios import EUROPE, SCENARIOS, scenario_inventory, scenario_text


def _topology(name: str) -> Topology:
    return anchored(build(scenario_inventory(name), where=name), [])


def _between_regions(topology: Topology) -> list[Link]:
    region = {m.name: m.region for m in topology.machines}
    return [k for k in topology.links if region[k.source] != region[k.target]]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_setting_is_the_testbed_and_labelled_reconstructed(name: str) -> None:
    topology = _topology(name)
    assert Counter(d.device_class for d in topology.devices) == {"HetRL-A100": 24, "HetRL-L40S": 24, "HetRL-L4": 16}
    assert topology.cluster.reconstructed and topology.cluster.name == name
    assert "assumed" in scenario_inventory(name).description
    assert ("min(5, 55 / one-way ms)" in scenario_inventory(name).description) == (name in ("multi-country", "multi-continent"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_its_text_is_the_same_inventory(name: str) -> None:
    assert anchored(read_inventory(scenario_text(name), where=name), []).fingerprint == _topology(name).fingerprint


@pytest.mark.parametrize(("name", "delays_ms", "gbit_per_s"), [("multi-country", (5, 30), (1.9, 5.0)), ("multi-continent", (5, 60), (0.9, 5.0))])
def test_links_between_regions_are_in_the_printed_ranges(name: str, delays_ms: tuple[float, float], gbit_per_s: tuple[float, float]) -> None:
    topology = _topology(name)
    assert len({m.region for m in topology.machines}) == 8
    assert {len([d for d in topology.devices if topology.machine(d.machine).region == r]) for r in {m.region for m in topology.machines}} == {8}
    links = _between_regions(topology)
    delays, rates = [k.latency_s * 1e3 for k in links], [k.bandwidth_bytes_per_s * 8 / 1e9 for k in links]
    half = 0.5  # the printed ranges are whole milliseconds
    assert delays_ms[0] - half <= min(delays) and max(delays) <= delays_ms[1] + half
    assert round(min(rates), 1) >= gbit_per_s[0] and max(rates) == gbit_per_s[1]


def test_hybrid_edge_reaches_virginia_only() -> None:
    topology = _topology("multi-region-hybrid")
    links = {(k.source, k.target): k for k in topology.links}
    assert {(round(k.latency_s * 1e3), round(k.bandwidth_bytes_per_s * 8 / 1e9)) for k in _between_regions(topology)} == {(10, 5)}
    edge = [m.name for m in topology.machines if m.zone == "edge"]
    ohio = [m.name for m in topology.machines if m.region == "Ohio"]
    virginia = [m.name for m in topology.machines if m.region == "Virginia" and m.zone != "edge"]
    assert len(edge) == 16 and len(ohio) == len(virginia) == 24
    assert not any((a, b) in links or (b, a) in links for a in edge for b in ohio)
    assert {links[a, b].bandwidth_bytes_per_s for a in edge for b in [*virginia, *edge] if a != b} == {1e9 / 8}


def test_stand_ins_are_named_where_nothing_was_measured() -> None:
    assert delay_between("London", "Frankfurt").notes == () and delay_between("London", "Frankfurt").one_way_ms == 8.5
    assert delay_between("Virginia", "Ohio") == delay_between("Ohio", "Virginia")
    paris = delay_between("Spain", "Paris")
    assert paris.one_way_ms == pytest.approx(13.5 + 4.75)
    assert any("Madrid" in n for n in paris.notes) and any("taken over London" in n for n in paris.notes)
    assert "Madrid" in scenario_inventory("multi-country").description and "Zurich" in scenario_inventory("multi-country").description
    assert "Madrid" not in scenario_inventory("multi-continent").description


def test_every_pair_of_the_ten_regions_has_a_delay_with_a_source() -> None:
    regions = {*EUROPE, "Virginia", "Ohio"}
    assert all(delay_between(a, b).one_way_ms > 0 for a in regions for b in regions if a != b)
    assert all(entry.source for entry in region_data().measured)
    with pytest.raises(KeyError):
        delay_between("Virginia", "Atlantis")


def test_unknown_scenario() -> None:
    with pytest.raises(InputError) as refusal:
        scenario_inventory("moon")
    assert refusal.value.line == ("InputError: there is no scenario 'moon' → use one of single-region, multi-region-hybrid, multi-country, "
                                  "multi-continent")
