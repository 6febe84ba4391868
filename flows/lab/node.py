"""A Ray node of the lab, in the foreground: the head on this machine, or a machine in its container.

``python -m flows.lab.node '<NodeConfig as JSON>'``; says READY and the GCS's address when Ray has started, and ends when a part of the
node does.
Ray's ``Node`` is used directly: ``ray start`` takes three seconds more, and starts what the lab has no use for.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from pydantic import Field

from artifacts.base import Strict

READY = "node is ready: "
_OBJECT_STORE_BYTES = 128 << 20
_LOOK_S = 1.0


class NodeConfig(Strict):
    """``gcs``: address of the cluster's GCS, "" for the head, which chooses its port."""

    address: str
    gcs: str = ""
    folder: str
    cpus: int = 0
    gpus: int = 0
    resources: dict[str, float] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)


def main(config: NodeConfig) -> None:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    options: dict[str, Any] = dict(
        num_cpus=config.cpus, num_gpus=config.gpus, resources=config.resources, labels=config.labels, node_ip_address=config.address,
        temp_dir=config.folder, object_store_memory=_OBJECT_STORE_BYTES, include_dashboard=False, include_log_monitor=False,
        no_monitor=True, min_worker_port=0, max_worker_port=0, node_manager_port=0, dashboard_agent_listen_port=None)
    if config.gcs:
        options |= {"gcs_address": config.gcs, "redis_address": config.gcs}
    else:
        # Without this Ray starts a worker for each declared CPU as soon as a driver connects.
        options["_system_config"] = {"prestart_worker_first_driver": False}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    node = Node(RayParams(**options), head=not config.gcs, shutdown_at_exit=True, spawn_reaper=True)
    print(f"{READY}{node.gcs_address}", flush=True)
    while not node.dead_processes():
        time.sleep(_LOOK_S)
    sys.exit("a part of the Ray node has ended: " + ", ".join(kind for kind, _ in node.dead_processes()))


if __name__ == "__main__":
    main(NodeConfig.model_validate_json(sys.argv[1]))
