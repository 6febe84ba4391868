"""The page a person reads."""

from __future__ import annotations

from dataclasses import replace

from artifacts.topology import Unreachable
from stages.profile.basis import anchored
from stages.profile.report import topology_page
from tests.stages.profile.fleets import link, live_draft, with_link


def test_the_page_shows_classes_machines_links_and_what_is_wrong() -> None:
    draft = replace(with_link(live_draft(), link("m0", "m1", probe="failed")), unreachable=(Unreachable(machine="m9", reason="no answer"),))
    topology = anchored(draft, [])
    page = topology_page(topology, notes=["a note"], changes=["machine m9 is gone"], previous="v7")
    assert f"fingerprint `{topology.fingerprint[:12]}`" in page
    assert "| A100 | 6 | 40.0 GiB | 200.0 TFLOP/s ± 2% | 1400.0 GB/s | unknown | unknown | measured:" in page
    assert "| m0 … m2 (3) |" in page
    assert "| within the network | 6, 1 failed | 5.0 ms | 1.2 GB/s | measured |" in page
    assert "- m9: no answer" in page and "- a note" in page and "## Since v7" in page and "- machine m9 is gone" in page


def test_a_page_without_history_or_notes_has_no_empty_headings() -> None:
    page = topology_page(anchored(live_draft(), []), notes=[], changes=[], previous="")
    assert "## Notes" not in page and "## Since" not in page and "## Unreachable" not in page
    assert "unchanged" in topology_page(anchored(live_draft(), []), notes=[], changes=[], previous="v1")
