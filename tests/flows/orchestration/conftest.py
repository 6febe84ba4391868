"""One Prefect server and one worker for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from flows.services import daemon, prefect
from flows.services.s3 import S3Server
from flows.services.state import home, store_url
from tests.flows.orchestration.services import ROOT, Services, free_port


@pytest.fixture(scope="package")
def services(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Services]:
    port = free_port()
    before = os.environ.get("HETRL_HOME")
    os.environ["HETRL_HOME"] = str(tmp_path_factory.mktemp("home"))
    try:
        prefect.start_server(port)
        prefect.deploy(ROOT, port)
        prefect.start_worker(ROOT, {**s3_server.environment(), "HETRL_STORE": store_url()}, port)
        yield Services(port=port, s3=s3_server)
    finally:
        for name in (prefect.WORKER, prefect.SERVER):
            running = daemon.find(home(), name)
            if running:
                running.stop()
        os.environ.pop("HETRL_HOME")
        if before is not None:
            os.environ["HETRL_HOME"] = before
