"""What it took the last time to get from nothing running to training: measured, not predicted."""

from __future__ import annotations

from artifacts.deployment import Deployment
from artifacts.manifest import Manifest
from artifacts.store import Store
from artifacts.throughput import Throughput
from flows.graph import FILE
from flows.upstream import Upstream

LOOK_BACK = 10


def measured_restart_s(store: Store, cluster: str) -> float | None:
    """Seconds that deploy took and that train took beside its iterations, in the last training on that cluster; None: there is none.

    A run of the simulator is no training.
    """
    for train in Upstream(store).recent("train", LOOK_BACK):
        deployed = train.inputs.get("deployment")
        if deployed is None or store.read(deployed, Deployment).cluster != cluster:
            continue
        log = Throughput.from_jsonl(store.read_bytes(train.ref, FILE["throughput"]), where=f"{FILE['throughput']} of {train.ref}")
        if log.header.simulated:
            continue
        iterations_s = sum(i.time_s for i in log.iterations if i.step > log.header.resumed_step)
        return _took_s(store.manifest(deployed)) + max(0.0, _took_s(train) - iterations_s)
    return None


def _took_s(manifest: Manifest) -> float:
    return (manifest.producer.finished_at - manifest.producer.started_at).total_seconds()
