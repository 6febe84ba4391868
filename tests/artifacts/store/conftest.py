"""Every store test runs on a folder and on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts.store import Store, StoreSettings
from tests.artifacts.store.ceph import rgw
from tests.artifacts.store.store_places import Place, own_url


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return Place((tmp_path / "store").as_uri())
    server = request.getfixturevalue("s3_server")
    return Place(own_url(), StoreSettings.from_env(server.environment()))


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture(scope="session")
def ceph_rgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreSettings]:
    with rgw(tmp_path_factory.mktemp("ceph")) as settings:
        yield settings
