"""What all tests share: one real S3 server, and no test that is decided by the clock."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from flows.services.s3 import S3Server, start_s3

settings.register_profile("gate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell: what Ctrl-C does is tested
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_that_ends_the_process() -> Iterator[None]:
    """A client of a Ray cluster that is gone ends its process after a minute, a lease nobody renews sends it SIGTERM."""
    yield
    assert "lease-keeper" not in {thread.name for thread in threading.enumerate()}
    if "ray" in sys.modules:
        import ray
        from ray.experimental import internal_kv

        assert not ray.is_initialized() and not internal_kv._internal_kv_initialized()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS on free loopback ports with credentials of its own; ``s3_server.environment()`` is how to reach it."""
    server = start_s3(tmp_path_factory.mktemp("s3"), detached=False)
    try:
        yield server
    finally:
        server.stop()
