"""The lab brought up and taken down.

``up``: a network, the head of a Ray cluster on this machine (it has no devices: it is the control plane, near to everybody), a
container a machine with a Ray node, and a router between the machines. All of it is found again by a label or a mark, so
``down`` needs nothing that a crash could have lost.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from artifacts.errors import HetrlError, InputError, RunnerUnavailable
from flows.lab import node, router, software
from flows.lab.machines import LabEngine, LabNetwork
from flows.lab.node import NodeConfig
from flows.lab.router import RoutedLink, RoutedMachine, RouterConfig
from flows.lab.spec import LabSpec, check_fits
from flows.lab.state import LabState, lab_home, lab_identity, read_state, write_state
from flows.services import daemon

HEAD, ROUTER = "head", "router"
_MARK = "HETRL_LAB"
_START_S = 120.0
_STOP_S = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class LabStatus:
    """``machines``: name → the engine's word for its container; a lab is whole when all of them run, and so do head and router."""

    state: LabState | None
    machines: dict[str, str]
    head: bool
    router: bool

    @property
    def whole(self) -> bool:
        expected = {m.name for m in self.state.spec.machines} if self.state else set()
        running = {name for name, status in self.machines.items() if status == "running"}
        return self.state is not None and running == expected and self.head and self.router


def up(spec: LabSpec, *, say: Say = lambda _: None) -> LabState:
    """Bring the lab up; one that is up already and is the same is left alone. Whatever fails, nothing stays behind.

    Raises:
        InputError: this machine has not what the quotas add up to, or another lab is up.
        RunnerUnavailable: no root, no TUN, no Docker engine, no Ray.
        StageTimeout: a part did not start in time.
    """
    check_allowed()
    engine = LabEngine(lab_identity())
    try:
        check_fits(spec, cores=engine.cores, memory_bytes=psutil.virtual_memory().total)
        found = _status(engine)
        if found.whole and found.state is not None:
            if found.state.spec == spec:
                say(f"lab {spec.name} is up already")
                return found.state
            raise InputError(f"lab {found.state.spec.name} is up, and differs from what is asked for", fix="type: hetrl lab down")
        for what in _remove(engine):
            say(f"left over from before: {what}, removed")
        try:
            return _start(engine, spec, say)
        except BaseException:
            _remove(engine)
            raise
    finally:
        engine.close()


def down() -> list[str]:
    """Remove everything of the lab, also after a crash; what was there, in words. Raises ``RunnerUnavailable`` without root or Docker."""
    check_allowed()
    engine = LabEngine(lab_identity())
    try:
        return _remove(engine)
    finally:
        engine.close()


def status() -> LabStatus:
    """What of the lab runs. Raises ``RunnerUnavailable`` without Docker."""
    engine = LabEngine(lab_identity())
    try:
        return _status(engine)
    finally:
        engine.close()


def check_allowed() -> None:
    """Raise :class:`RunnerUnavailable` unless this process may make network devices in containers."""
    if not sys.platform.startswith("linux"):
        raise RunnerUnavailable("the lab needs Linux: it is made of its namespaces and control groups", fix="use a Linux machine")
    if os.geteuid() != 0:
        raise RunnerUnavailable("the lab needs root: it makes network devices inside containers", fix="type: sudo hetrl lab …")
    if not Path("/dev/net/tun").exists():
        raise RunnerUnavailable("the lab needs /dev/net/tun, which is not there", fix="type: modprobe tun")


def _start(engine: LabEngine, spec: LabSpec, say: Say) -> LabState:
    home, work = lab_home(), software.WORK.absolute()
    for folder in (home, work):
        folder.mkdir(parents=True, exist_ok=True)
    say("making the network")
    engine.make_image()
    network = engine.make_network([m.name for m in spec.machines])
    say(f"starting Ray's head at {network.gateway}")
    gcs = _start_head(network.gateway)
    say(f"starting {len(spec.machines)} machines")
    for machine in spec.machines:
        engine.start(machine, network, gcs=gcs, folder=_ray_folder(), work=work)
    say("starting the router")
    _start_router(engine, spec, network)
    say("waiting for Ray in every machine")
    engine.wait_ready(within_s=_START_S)
    engine.limit({m.name: m.cpus for m in spec.machines})
    state = LabState(spec=spec, address=gcs, addresses=network.addresses)
    write_state(state)
    return state


def _start_head(gateway: str) -> str:
    """Address of the cluster's GCS."""
    config = NodeConfig(address=gateway, folder=_ray_folder())
    log = _start_daemon(HEAD, software.command("flows.lab.node", config.model_dump_json()), node.READY)
    return next(line for line in log.splitlines() if line.startswith(node.READY)).removeprefix(node.READY)


def _start_router(engine: LabEngine, spec: LabSpec, network: LabNetwork) -> None:
    pids = engine.processes()
    config = RouterConfig(
        machines={name: RoutedMachine(pid=pids[name], address=address) for name, address in network.addresses.items()},
        links=[RoutedLink(source=a, target=b, latency_s=k.latency_ms / 1e3, bytes_per_s=k.bandwidth_mbit_per_s * 1e6 / 8)
               for a, b, k in spec.pairs()])
    path = lab_home() / "router-config.json"
    path.write_text(config.model_dump_json(indent=1), encoding="utf-8")
    _start_daemon(ROUTER, software.command("flows.lab.router", str(path)), router.READY)


def _start_daemon(name: str, command: list[str], ready: str) -> str:
    """Its log, once it has said that it is ready."""
    log = lab_home() / f"{name}.log"
    log.unlink(missing_ok=True)
    daemon.start(lab_home(), name, command, env={**os.environ, **software.environment(), _MARK: lab_identity()}, cwd=lab_home(),
                 ready=lambda: ready in _text(log), wait_s=_START_S)
    return _text(log)


def _status(engine: LabEngine) -> LabStatus:
    return LabStatus(state=read_state(), machines={name: str(c.status) for name, c in engine.machines().items()},
                     head=daemon.find(lab_home(), HEAD) is not None, router=daemon.find(lab_home(), ROUTER) is not None)


def _remove(engine: LabEngine) -> list[str]:
    """Containers first: nothing in them is worth a goodbye. The router's devices and routes go with it, and with them."""
    removed = engine.remove_all()
    removed += _end_marked(lab_identity())
    for folder in (lab_home(), Path(_ray_folder())):
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(f"folder {folder}")
    return removed


def _end_marked(identity: str) -> list[str]:
    """Kill the processes that carry the lab's mark, and those they may have started meanwhile: none has anything to save."""
    names: dict[int, str] = {}
    until = time.monotonic() + _STOP_S
    while found := [p for p in psutil.process_iter() if p.pid != os.getpid() and _environment(p).get(_MARK) == identity]:
        if time.monotonic() > until:
            raise HetrlError(f"processes {', '.join(str(p.pid) for p in found)} of the lab do not end",
                             fix="see what holds them up, then repeat")
        for process in found:
            with suppress(psutil.Error):
                names[process.pid] = f"process {process.pid} ({' '.join(process.cmdline()[:4])[:80]})"
                process.kill()
        psutil.wait_procs(found, timeout=1)
    return list(names.values())


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _ray_folder() -> str:
    """Short, as sockets are in it (AF_UNIX paths hold 107 bytes); the same in the machines, where /tmp is their own."""
    return f"/tmp/hetrl-lab-{lab_identity()}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
