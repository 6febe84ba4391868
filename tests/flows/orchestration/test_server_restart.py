"""Prefect's server is killed in the middle of a run and started again: the stage goes on, and nothing of the run is lost."""

from __future__ import annotations

import logging
import time

import psutil
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from artifacts.invocation import Progress
from artifacts.store import open_store
from artifacts.store.settings import StoreSettings
from flows import events
from flows.services import daemon, prefect
from flows.services.state import home, store_url
from tests.flows.orchestration.services import ROOT, Services, wait_for_stage

JOB = str(ROOT / "infra/jobs/qwen3-4b-grpo.yaml")
PAIR = str(ROOT / "infra/clusters/workstation-pair.yaml")
DOWN_S = 5.0
"""Long enough for the run to have something to say meanwhile: it shows progress every two seconds."""


def kill_the_server() -> None:
    running = daemon.find(home(), prefect.SERVER)
    assert running is not None
    process = running.process()
    assert process is not None
    family = [process, *process.children(recursive=True)]
    for one in family:
        one.kill()
    psutil.wait_procs(family, timeout=60)


def test_a_server_that_is_killed_under_a_run_and_comes_back(services: Services) -> None:
    store = open_store(store_url(), settings=StoreSettings.from_env(services.s3.environment()))
    before = set(store.versions("schedule"))
    run = services.start("train", job=JOB, cluster=PAIR, until_stage="schedule", budget="12s", force=True)
    stage = wait_for_stage("stages.schedule")
    kill_the_server()
    assert not prefect.healthy(services.port)
    time.sleep(DOWN_S)
    prefect.start_server(services.port)

    state = services.finish(run)
    assert state["name"] == "Completed", state
    assert not stage.is_running()
    made = set(store.versions("schedule")) - before
    assert made == {store.latest("schedule")}, "made once, by the stage that ran when the server was killed"
    assert store.verify() == []
    assert "qwen3-4b-grpo" in services.shown(run, "hetrl-plan")
    deadline = time.monotonic() + 300
    while services.tasks(run) != {"profile": "Completed", "schedule": "Completed"}:  # what the run told nobody is sent again, every half minute
        assert time.monotonic() < deadline, services.tasks(run)
        time.sleep(1)


def test_progress_that_no_server_takes_does_not_end_the_stage(caplog: pytest.LogCaptureFixture) -> None:
    log = events.StageLog("train", logging.getLogger("test of progress"))
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}), caplog.at_level(logging.INFO):
        for _ in range(2):
            log("train", Progress(done=2, total=2, message="iteration 2"))
        events.wait_for_server(within_s=0)
    said = [record.message for record in caplog.records if record.levelname == "WARNING" and record.name == "test of progress"]
    assert said == ["Prefect's server does not take the progress of train (ConnectError); the stage goes on"]
