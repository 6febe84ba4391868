"""The process that keeps local Ray nodes: everything of Ray is below it, and nothing of it outlives it.

It is started by :mod:`stages.cluster.local`, reads what to start from standard input (one JSON line), answers a JSON line a
node, and ends all of it when standard input is closed: by whoever started it, or by the kernel, if that was killed. Ray alone
does not manage that: its servers can be bound to their parent's life, but its agents survive it, for minutes on a busy machine.

Ray's ``Node`` is used directly, not ``ray start`` (three seconds and a process a node) nor ``ray.cluster_utils.Cluster``
(takes over SIGTERM, and leaves its address where other programs of this user would find and join it).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import threading
from contextlib import suppress
from typing import IO, Any

import psutil

from stages.cluster.names import LOOPBACK
from stages.cluster.processes import end_descendants

_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 2.0


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints is not an answer
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans of ours come to us, not to init
    for number in (signal.SIGTERM, signal.SIGINT):  # the end comes by standard input
        signal.signal(number, lambda *_: None)  # not SIG_IGN: whatever Ray starts would inherit that
    asked = json.loads(_line())
    # A thread of its own: starting a node can take many seconds, the end must not wait for it.
    watcher = threading.Thread(target=_end_when_closed, args=(asked["scratch"],), daemon=True)
    watcher.start()
    _start_all(asked, answers)
    while True:
        watcher.join(timeout=60)
        _reap()


def _line() -> bytes:
    line = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


def _end_when_closed(scratch: str) -> None:
    """Nothing more is written to standard input: it becomes readable when it is closed."""
    while os.read(0, 1):
        pass
    try:
        _end_servers()
        end_descendants(psutil.Process(), grace_s=_GRACE_S)
        shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os._exit(0)  # with whatever a start in progress may just have begun: the kernel ends that with us


def _end_servers() -> None:
    """Raylets say goodbye to the GCS, which does not answer SIGTERM in time: they go first, within milliseconds, and it is killed."""
    servers = psutil.Process().children()
    raylets = [p for p in servers if _is(p, "raylet")]
    for raylet in raylets:
        with suppress(psutil.NoSuchProcess):
            raylet.terminate()
    psutil.wait_procs(raylets, timeout=_GRACE_S)
    for server in servers:
        if _is(server, "gcs_server"):
            with suppress(psutil.NoSuchProcess):
                server.kill()


def _is(process: psutil.Process, name: str) -> bool:
    try:
        return process.name() == name
    except psutil.NoSuchProcess:
        return False


def _start_all(asked: dict[str, Any], answers: IO[str]) -> None:
    nodes: list[Any] = []
    for machine, declared in asked["machines"].items():
        try:
            head = nodes[0] if nodes else None
            nodes.append(_start(declared, head=head, scratch=asked["scratch"], object_store=asked["object_store_bytes"]))
        except Exception as error:
            answers.write(json.dumps({"machine": machine, "error": f"{type(error).__name__}: {error}"}) + "\n")
            return
        answers.write(json.dumps({"machine": machine, "node_id": nodes[-1].node_id, "address": nodes[0].gcs_address}) + "\n")


def _start(declared: dict[str, float], *, head: Any, scratch: str, object_store: int) -> Any:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    options: dict[str, Any] = dict(
        num_cpus=int(declared["CPU"]), num_gpus=int(declared["GPU"]), object_store_memory=object_store,
        resources={name: amount for name, amount in declared.items() if name not in ("CPU", "GPU")},
        node_ip_address=LOOPBACK, temp_dir=scratch, include_dashboard=False, include_log_monitor=False, no_monitor=True,
        min_worker_port=0, max_worker_port=0, node_manager_port=0, dashboard_agent_listen_port=None,
    )
    if head is None:
        # Without this Ray starts a worker for each declared CPU as soon as a driver connects.
        options["_system_config"] = {"prestart_worker_first_driver": False}
    else:
        options |= {"gcs_address": head.gcs_address, "redis_address": head.redis_address}
    # spawn_reaper binds Ray's servers to this process in the kernel, should it be killed itself.
    return Node(RayParams(**options), head=head is None, shutdown_at_exit=False, spawn_reaper=True)


def _reap() -> None:
    """Collect orphans that ended. Ray waits for its own servers itself, so only processes it does not know are taken."""
    for child in psutil.Process().children():
        if child.status() == psutil.STATUS_ZOMBIE and child.name() not in ("raylet", "gcs_server", "python"):
            child.wait(timeout=1)


if __name__ == "__main__":
    main()
