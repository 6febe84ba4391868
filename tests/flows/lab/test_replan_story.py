"""The whole story of a re-plan for real, as a person runs it: ``make story``. A quarter of an hour of everything the machine has, so not in the gate."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artifacts.errors import RunnerUnavailable
from flows.lab import lab
from flows.launch.engine import connect
from tests.benchmarks.replan_lab import story

pytestmark = [pytest.mark.story, pytest.mark.docker, pytest.mark.engine, pytest.mark.timeout(3600)]


def test_a_training_goes_on_when_a_machine_dies_and_when_it_comes_back_behind_a_slower_link(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    try:
        connect().close()
    except RunnerUnavailable as error:
        pytest.skip(error.line)
    try:
        told = story(tmp_path, (tmp_path / "store").as_uri(), 6)
    finally:
        lab.down()
    assert told.went_on(6), told
