"""A Ray cluster on this machine: a Ray node for every machine of a topology, with the devices the topology says it has."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

import stages
from artifacts.errors import RunnerUnavailable, StageTimeout
from artifacts.topology import Machine, Topology
from artifacts.units import MIB
from stages.cluster.names import MACHINE_AMOUNT, device_resource, machine_resource
from stages.cluster.processes import end_descendants
from stages.cluster.scratch import keep_logs, scratch_folder
from stages.cluster.signals import StopSignal

_OBJECT_STORE_BYTES = 128 * MIB
# Ray counts CPUs by what is declared; here they only admit actors, all of which share this machine's cores.
_DECLARED_CPUS = 64
_DECLARED_CPUS_PER_DEVICE = 16
# Fake GPUs: Ray must not clear CUDA_VISIBLE_DEVICES of workers that ask for none. No usage reports leave this machine.
_ENVIRONMENT = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_END_DEADLINE_S = 8.0


@dataclass(frozen=True)
class LocalNodes:
    """The running nodes: GCS address, and Ray's node id of every machine."""

    address: str
    node_ids: dict[str, str]


def declared_resources(topology: Topology, machine: Machine) -> dict[str, float]:
    """What the Ray node that stands for ``machine`` declares."""
    devices = [d for d in topology.devices if d.machine == machine.name]
    cpus = max(_DECLARED_CPUS, _DECLARED_CPUS_PER_DEVICE * len(devices))
    # Only CPU shares are called by name: which GPU a bundle holds is Ray's choice, so a name for it would prove nothing.
    named = {device_resource(d.id): 1.0 for d in devices if d.vendor == "cpu"}
    return {"CPU": cpus, "GPU": len(devices), machine_resource(machine.name): MACHINE_AMOUNT, **named}


@contextmanager
def local_nodes(topology: Topology, *, env: Mapping[str, str], workdir: Path, deadline_s: float, stop: StopSignal) -> Iterator[LocalNodes]:
    """Start the nodes; stop them, and every process they started, at the end, also if this process is killed.

    After an error Ray's logs are kept in ``workdir/ray-logs``.
    """
    with scratch_folder() as scratch:
        keeper = _keeper(env)
        try:
            yield _start(keeper, topology, scratch, deadline_s)
        except BaseException:
            keep_logs(scratch, workdir)
            raise
        finally:
            with stop.held():
                _end(keeper)


def _keeper(env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    source = str(Path(stages.__file__).parent.parent)
    variables = {**os.environ, **_ENVIRONMENT, **env}
    variables["PYTHONPATH"] = os.pathsep.join(p for p in (source, variables.get("PYTHONPATH", "")) if p)
    # A session of its own: what is sent to our group must not reach it before its work is done.
    return subprocess.Popen([sys.executable, "-m", "stages.cluster.keeper"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            env=variables, start_new_session=True)


def _start(keeper: subprocess.Popen[bytes], topology: Topology, scratch: Path, deadline_s: float) -> LocalNodes:
    machines = {m.name: declared_resources(topology, m) for m in topology.machines}
    asked = {"machines": machines, "scratch": str(scratch), "object_store_bytes": _OBJECT_STORE_BYTES}
    assert keeper.stdin is not None and keeper.stdout is not None
    keeper.stdin.write(json.dumps(asked).encode() + b"\n")
    keeper.stdin.flush()
    until = time.monotonic() + deadline_s
    node_ids: dict[str, str] = {}
    address = ""
    for name in machines:
        ready, _, _ = select.select([keeper.stdout], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise StageTimeout(f"{len(node_ids)} of {len(machines)} local Ray nodes started within {deadline_s:g} s; next was {name}",
                               fix="give a longer start deadline, or stop what else loads this machine")
        line = _line(keeper)
        answer = json.loads(line) if line else {"error": "its keeper ended"}
        if "error" in answer:
            raise RunnerUnavailable(f"Ray cannot start the node of {name} here: {answer['error']}",
                                    fix="see ray-logs in the stage's workdir")
        node_ids[name], address = answer["node_id"], answer["address"]
    return LocalNodes(address=address, node_ids=node_ids)


def _line(keeper: subprocess.Popen[bytes]) -> bytes:
    """One answer, byte by byte: whatever is read ahead would be missed by the next ``select``."""
    assert keeper.stdout is not None
    line = bytearray()
    while byte := os.read(keeper.stdout.fileno(), 1):
        if byte == b"\n":
            break
        line += byte
    return bytes(line)


def _end(keeper: subprocess.Popen[bytes]) -> None:
    assert keeper.stdin is not None and keeper.stdout is not None
    with suppress(BrokenPipeError):
        keeper.stdin.close()
    try:
        keeper.wait(timeout=_END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        end_descendants(psutil.Process(keeper.pid), grace_s=0.5)
        keeper.kill()
        keeper.wait()
    keeper.stdout.close()
