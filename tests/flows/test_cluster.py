"""What a person types as a cluster, as the profile stage is asked for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from artifacts.errors import InputError
from flows.cluster import is_live, profile_parameters
from stages.profile.listings import read_listings
from stages.profile.parameters import ListingsCluster, ProfileParameters

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


def test_an_empty_folder_is_no_fleet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no listing"):
        profile_parameters(str(tmp_path))
