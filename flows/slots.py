"""One training per cluster, where Prefect shows it: a run that has to wait for another is seen waiting.

The lease in the store is what counts, for runs without Prefect too; this spares the runs of one server the error that it is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency

from artifacts.topology import Topology
from flows.graph import StageName
from flows.pipeline import Pipeline


def takes_the_cluster(pipeline: Pipeline, stage: StageName) -> bool:
    """Whether ``stage`` is about to run on devices: a version that stands does not, nor does a cluster that is only described."""
    if stage not in ("deploy", "train") or pipeline.store.read(pipeline.known["topology"], Topology).cluster.kind == "inventory":
        return False
    return pipeline.decide(stage).hit is None


@contextmanager
def cluster_slot(pipeline: Pipeline) -> Iterator[None]:
    """Wait until no other run of this server trains on the cluster, and hold it. A live run is never ended for a lost slot."""
    name = limit_name(pipeline.store.read(pipeline.known["topology"], Topology).cluster.name)
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(name, 1)
    with concurrency(name, strict=True, raise_on_lease_renewal_failure=False):
        yield


def limit_name(cluster: str) -> str:
    return f"hetrl-cluster-{cluster}"
