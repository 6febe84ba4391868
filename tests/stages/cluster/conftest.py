"""One uneven local cluster for all tests of a module: starting Ray takes longer than what is tested on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stages.cluster import Cluster, open_cluster
from tests.stages.cluster.fleets import fleet


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Machines a, b, c with 3, 1 and 2 devices."""
    pytest.importorskip("ray")
    with open_cluster(fleet({"a": 3, "b": 1, "c": 2}), env={"HETRL_TEST": "seen"}, workdir=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
