"""``hetrl up`` for all tests of this folder, and ``hetrl down`` after them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.services.state import embedded_s3
from tests.flows.orchestration.services import ROOT, Services, free_port
from tests.infra.docs.terminal import typed


@pytest.fixture(scope="package")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("AWS_", "HETRL_", "PREFECT_"))]:
            patch.delenv(name)
        patch.setenv("HETRL_HOME", str(tmp_path_factory.mktemp("home")))
        os.chdir(ROOT)
        try:
            port = free_port()
            typed("hetrl up", f"--port {port} --s3-port 0")
            server = embedded_s3()
            assert server is not None
            yield Services(port=port, s3=server)
        finally:
            typed("hetrl down")
            os.chdir(before)
    assert embedded_s3() is None
