"""What the pages say of a fleet that Ray runs on, typed; the fleet is a Ray node of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.search import Search
from artifacts.topology import Topology
from tests.infra.docs.terminal import SMALL, typed
from tests.stages.profile.ray_fleet import ray_fleet

pytestmark = pytest.mark.engine


def test_a_fleet_with_ray_on_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """infra/README.md's run ends here once the fleet is measured: on it trains tests/stages/train."""
    typed("hetrl profile --cluster local --out out/")
    assert Topology.read(folder / "out/topology.json").cluster.kind == "local"
    with ray_fleet("a", cpus=2) as fleet:
        monkeypatch.setenv("RAY_ADDRESS", fleet.address)
        typed("hetrl profile --cluster ray:auto --out out/")
        assert [m.name for m in Topology.read(folder / "out/topology.json").machines] == ["a"]
        typed("hetrl run --cluster ray:auto", "--until profile")
        typed("hetrl profile --cluster infra/clusters/testbed-64.yaml --out out/")
        command = "hetrl schedule infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --workers ray --ray-workers 32 --seconds 30 --out out/"
        typed(command, f"--ray-workers 2 --seconds 1 {SMALL}")
    assert [arm.name[:11] for arm in Search.read(folder / "out/search.json").arms] == ["search 1 of", "search 2 of"]
