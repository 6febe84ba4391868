"""What the pages say of planning, typed: on files, without a store or a cluster."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.topology import Topology
from tests.documented import ROOT
from tests.infra.docs.terminal import SMALL, typed

FEW = "--evaluations 200"
HOSTS = """machines:
- {name: gpu01, cpus: 64, host_memory_gib: 256}
- {name: gpu02, cpus: 64, host_memory_gib: 256}
links: {same_zone: {latency_ms: 0.05, bandwidth_gbit_per_s: 100}}
"""
"""What no driver says."""


@pytest.fixture(autouse=True)
def nothing_from_before(folder: Path) -> None:
    shutil.rmtree(folder / "out", ignore_errors=True)


def test_planning_alone_and_planning_again(folder: Path) -> None:
    """README.md, and from its plan on infra/docs/search.md."""
    typed("hetrl profile --cluster infra/clusters/testbed-64.yaml --out out/")
    assert len(Topology.read(folder / "out/topology.json").devices) == 64
    typed("hetrl scenario multi-country --out out/country.json")
    assert len(Topology.read(folder / "out/country.json").devices) == 64
    said = typed("hetrl schedule infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --out out/ --seconds 10", f"--seconds 1 {SMALL}")
    assert "predicted iteration" in said and (folder / "out/report.html").is_file()
    typed("hetrl predict infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --plan out/plan.json --fidelity paper", f"{SMALL} --out out/paper")
    priced = [Prediction.read(folder / where / "prediction.json").iteration_time_s for where in ("out", "out/paper")]
    assert priced[0] != priced[1] and min(priced) > 0
    typed("hetrl simulate --job infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --plan out/plan.json --trace out/trace.json", SMALL)
    assert json.loads((folder / "out/trace.json").read_text())["traceEvents"]

    again = "hetrl schedule infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --warm out/plan.json --out out/again/"
    near = "hetrl schedule infra/jobs/qwen3-8b-ppo.yaml --topology out/topology.json --warm out/plan.json --prefer-stable --horizon 500 --out out/near/"
    assert "Against the plan in force" in typed(again, f"{FEW} {SMALL}")
    typed(near, f"{FEW} {SMALL}")
    moves = [Search.read(folder / where / "search.json").moves for where in ("out/again", "out/near")]
    assert [m.horizon_iterations for m in moves if m] == [None, 500]


def test_the_quick_start_and_what_to_try_on_gpus(folder: Path) -> None:
    """infra/docs/quick-start.md; infra/docs/engine.md plans the same job with the search's own budget."""
    typed("hetrl profile --cluster infra/clusters/workstation-pair.yaml --out out/")
    typed("hetrl schedule infra/jobs/qwen3-4b-grpo.yaml --topology out/topology.json --evaluations 300 --out out/")
    said = typed("hetrl predict infra/jobs/qwen3-4b-grpo.yaml --topology out/topology.json --plan out/plan.json", "--json")
    assert json.loads(said.splitlines()[-1])["feasible"] is True
    typed("hetrl schedule infra/jobs/qwen3-4b-grpo.yaml --topology out/topology.json --out out/", FEW)


def test_this_machine(folder: Path) -> None:
    """infra/docs/engine.md has it for a machine with GPUs; without, its cores are what is measured."""
    typed("hetrl profile --cluster local --out out/")
    assert Topology.read(folder / "out/topology.json").cluster.kind == "local"


def test_your_own_fleet(folder: Path) -> None:
    """infra/docs/your-fleet.md, and the second step of README.md's way to one's own cluster."""
    typed("cp infra/clusters/workstation-pair.yaml my-fleet.yaml")
    typed("hetrl profile --cluster my-fleet.yaml --out out/")
    typed("cp infra/jobs/qwen3-8b-grpo.yaml my-job.yaml")
    typed("hetrl schedule my-job.yaml --topology out/topology.json --seconds 10 --out out/", "--seconds 1")
    typed("hetrl schedule my-job.yaml --topology out/topology.json --set constraints.max_devices=4 --evaluations 300 --out out/four/")
    assert sum(len(g.devices) for g in Plan.read(folder / "out/four/plan.json").groups) <= 4
    typed("hetrl predict my-job.yaml --topology out/topology.json --plan out/plan.json --set response_tokens.mean=512", "--out out/shorter")
    whole, shorter = (Prediction.read(folder / where / "prediction.json").iteration_time_s for where in ("out", "out/shorter"))
    assert shorter < whole
    typed("hetrl schedule my-job.yaml --topology out/topology.json --solver verl --out out/verl/", FEW)
    typed("hetrl schedule my-job.yaml --topology out/topology.json --solver exact --seconds 30 --out out/exact/", "--seconds 3")
    assert [Search.read(folder / f"out/{s}/search.json").solver for s in ("verl", "exact")] == ["verl", "exact"]
    typed("hetrl schedule my-job.yaml --topology out/topology.json --warm out/plan.json --prefer-stable --out out/near/", FEW)
    assert Search.read(folder / "out/near/search.json").moves is not None
    typed("hetrl schedule --topology out/topology.json --job my-job.yaml --out out/", FEW)
    assert (folder / "out/report.html").is_file()


def test_a_fleet_of_what_tools_print(folder: Path) -> None:
    """infra/docs/profile.md."""
    (folder / "seen-on-monday").mkdir()
    for name, listing in (("gpu01", "l40s"), ("gpu02", "l4")):
        shutil.copy(ROOT / f"tests/stages/profile/listings/{listing}.xml", folder / f"seen-on-monday/{name}.xml")
    (folder / "seen-on-monday/fleet.yaml").write_text(HOSTS)
    typed("hetrl profile --cluster seen-on-monday/ --out out/")
    assert {m.name for m in Topology.read(folder / "out/topology.json").machines} == {"gpu01", "gpu02"}


def test_a_plan_of_ones_own_is_played(folder: Path) -> None:
    """infra/docs/simulator.md."""
    shutil.copy(folder / "infra/jobs/qwen3-4b-grpo.yaml", folder / "J.yaml")
    typed("hetrl profile --cluster infra/clusters/workstation-pair.yaml --out out/")
    typed("hetrl schedule infra/jobs/qwen3-4b-grpo.yaml --topology out/topology.json --evaluations 300 --out out/", SMALL)
    shutil.copy(folder / "out/topology.json", folder / "T.json")
    shutil.copy(folder / "out/plan.json", folder / "plan.json")
    typed("hetrl simulate --topology T.json --job J.yaml --plan plan.json --trace trace.json", SMALL)
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
