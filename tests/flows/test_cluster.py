"""What a person types as a cluster, as the profile stage is asked for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from artifacts.errors import InputError
from artifacts.invocation import StageRequest
from artifacts.topology import Topology
from flows.cli.stages import run_stage
from flows.cluster import is_live, profile_parameters
from flows.lab.spec import read_lab
from flows.lab.state import LabState, write_state
from flows.session import RunRequest, open_run
from stages.profile.listings import read_listings
from stages.profile.parameters import ListingsCluster, ProfileParameters
from tests.artifacts.samples import topology

ROOT = Path(__file__).parents[2]
LISTINGS = Path(__file__).parents[1] / "stages/profile/listings"
HOST = "machines: [{name: l4, host_memory_gib: 128, cpus: 64}]\n"


def gpus(parameters: dict[str, object]) -> list[str]:
    json.dumps(parameters)  # they travel in a request
    cluster = ProfileParameters.model_validate(parameters).cluster
    assert isinstance(cluster, ListingsCluster)
    return sorted(d.id for d in read_listings(cluster).devices)


def test_a_folder_of_listings_is_a_fleet(tmp_path: Path) -> None:
    shutil.copy(LISTINGS / "l4.xml", tmp_path)
    (tmp_path / "fleet.yaml").write_text("name: pair\n" + HOST)
    parameters = profile_parameters(str(tmp_path))
    assert parameters["cluster"]["name"] == "pair"
    assert gpus(parameters) == ["l4.gpu-0", "l4.gpu-1"]
    assert not is_live(parameters)


def test_a_yaml_may_name_the_files_and_whose_they_are(tmp_path: Path) -> None:
    shutil.copy(LISTINGS / "l4.xml", tmp_path / "seen-on-monday.xml")
    (tmp_path / "mine.yaml").write_text(HOST + "files: [{file: seen-on-monday.xml, machine: l4}]\n")
    assert gpus(profile_parameters(str(tmp_path / "mine.yaml"))) == ["l4.gpu-0", "l4.gpu-1"]


@pytest.mark.parametrize(("text", "says"), [
    ("files: []", "a list of names is wanted"),
    ("files: [7]", "'7' is not a name"),
    ("files: [nowhere.xml]", "cannot read"),
    ("files: [../l4.xml]", "../l4.xml is outside of its folder"),
])
def test_a_description_that_cannot_be_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=says):
        profile_parameters(str(tmp_path / "mine.yaml"))


def test_the_lab_is_for_stages_that_are_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETRL_HOME", str(tmp_path))
    (tmp_path / "lab").mkdir()
    spec = read_lab(ROOT / "infra/lab/two-regions.yaml")
    write_state(LabState(spec=spec, address="10.213.1.1:6379", addresses={}))
    assert profile_parameters("lab")["cluster"] == {"kind": "lab", "address": "10.213.1.1:6379", "name": "two-regions"}
    asked = [lambda: open_run(RunRequest(cluster="lab", runner="docker", only="profile"), run_id="r"),
             lambda: run_stage("profile", {}, profile_parameters("lab"), tmp_path, "docker", False),
             lambda: run_stage("deploy", {"topology": lab_topology()}, {}, tmp_path, "docker", False)]
    for ask in asked:
        with pytest.raises(InputError, match="not with containers") as refusal:
            ask()
        assert "--runner docker" in refusal.value.fix


def lab_topology() -> Topology:
    described = topology()
    return Topology(cluster=described.cluster.model_copy(update={"kind": "lab"}), machines=described.machines, devices=described.devices,
                    links=described.links)


def test_a_stage_alone_works_where_the_labs_machines_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would run the stage is stood in for: it only looks where the stage would work."""
    asked: list[StageRequest] = []

    class Runner:
        name = "process"

        def run(self, request: StageRequest, **_: object) -> object:
            asked.append(request)
            raise InputError("seen enough")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.cli.stages.make_runner", lambda _: Runner())
    for given in (lab_topology(), topology()):
        with pytest.raises(InputError, match="seen enough"):
            run_stage("deploy", {"topology": given}, {}, tmp_path / "out", "process", False)
    on_lab, elsewhere = (Path(request.workdir) for request in asked)
    assert tmp_path / ".hetrl/work" in on_lab.parents and tmp_path not in elsewhere.parents
    assert list((tmp_path / ".hetrl/work").iterdir()) == [], "nothing of it stays"


def test_an_empty_folder_is_no_fleet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no listing"):
        profile_parameters(str(tmp_path))
