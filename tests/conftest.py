"""What all tests share: one real S3 server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flows.services.s3 import S3Server, start_s3


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS on free loopback ports with credentials of its own; ``s3_server.environment()`` is how to reach it."""
    server = start_s3(tmp_path_factory.mktemp("s3"), detached=False)
    try:
        yield server
    finally:
        server.stop()
