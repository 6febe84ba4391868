"""``hetrl scenario``, as one types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from artifacts.errors import InputError
from artifacts.topology import Topology
from flows.cli.scenario import scenario
from stages.profile.scenarios import SCENARIOS

app = typer.Typer()
app.command()(scenario)


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_writes_a_topology_that_is_labelled_and_says_its_rules(name: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "topology.json"
    done = CliRunner().invoke(app, [name, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout.strip().splitlines()[-1])
    topology = Topology.read(out)
    assert topology.cluster.reconstructed and said["reconstructed"] is True and said["fingerprint"] == topology.fingerprint
    assert (said["devices"], len(topology.devices)) == (64, 64)
    assert said["notes"][0].startswith(f"reconstructed from the HetRL paper's scenario {name}") and "assumed" in said["notes"][0]


def test_a_setting_nobody_published_and_a_place_nobody_can_write_to(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no scenario 'moon'") as refusal:
        scenario("moon", out=tmp_path / "t.json", as_json=False)
    assert "multi-continent" in refusal.value.fix
    with pytest.raises(InputError, match="cannot write to"):
        scenario("single-region", out=tmp_path, as_json=False)


def test_the_same_setting_as_an_inventory_to_change() -> None:
    done = subprocess.run([sys.executable, "-m", "stages.profile.scenarios", "multi-country"], capture_output=True, text=True, timeout=300, check=True)
    assert "reconstructed: true" in done.stdout and "Zurich" in done.stdout
