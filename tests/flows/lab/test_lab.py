"""The lab for real: containers, Ray, router; what profile finds in it without being told; and that nothing is left of it.

Other programs of this machine may load it: a profile that is off is made again, and what counts then is the median of three.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import psutil
import pytest
from typer.testing import CliRunner

from artifacts.errors import HetrlError, InputError, RunnerUnavailable
from artifacts.topology import Topology
from flows.cli.main import app
from flows.cluster import profile_parameters
from flows.lab import lab
from flows.lab.machines import LABEL, MACHINE_LABEL
from flows.lab.spec import LabSpec, read_lab
from flows.lab.state import LabState, lab_identity
from flows.launch.engine import connect
from stages.profile.fleet import profile_ray

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

SPEC = """name: trio
machines:
- {name: near-fast, region: near, cpus: 0.5, memory_gib: 2}
- {name: near-slow, region: near, cpus: 0.25, memory_gib: 2}
- {name: far-slow, region: far, cpus: 0.25, memory_gib: 2}
links:
- {between: [near, near], latency_ms: 2, bandwidth_mbit_per_s: 200}
- {between: [near, far], latency_ms: 15, bandwidth_mbit_per_s: 100}
- {between: [near-slow, far-slow], latency_ms: 25, bandwidth_mbit_per_s: 50}
"""
_RTT = """
import socket, sys, time
took = []
for _ in range(9):
    began = time.perf_counter()
    try:
        socket.create_connection((sys.argv[1], 9), timeout=5)
    except ConnectionRefusedError:
        took.append(time.perf_counter() - began)
print(min(took))
"""


@pytest.fixture(scope="module")
def engine() -> docker.DockerClient:
    try:
        lab.check_allowed()
        return connect()
    except RunnerUnavailable as error:
        pytest.skip(error.line)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lab of this module's own, whatever else is up on this machine."""
    folder = tmp_path_factory.mktemp("lab")
    before, variables = Path.cwd(), os.environ.get("HETRL_HOME")
    os.chdir(folder)
    os.environ["HETRL_HOME"] = str(folder / ".hetrl")
    try:
        yield folder
    finally:
        with suppress(HetrlError):
            lab.down()
        os.chdir(before)
        os.environ.pop("HETRL_HOME")
        if variables is not None:
            os.environ["HETRL_HOME"] = variables


@pytest.fixture(scope="module")
def spec(home: Path) -> LabSpec:
    (home / "trio.yaml").write_text(SPEC)
    return read_lab(home / "trio.yaml")


@pytest.fixture(scope="module")
def state(engine: docker.DockerClient, spec: LabSpec) -> LabState:
    return lab.up(spec)


def test_up_after_an_up_that_was_killed(engine: docker.DockerClient, spec: LabSpec, home: Path) -> None:
    """Before it could say that a lab is there: containers, Ray's head and the network are."""
    command = [sys.executable, "-P", "-m", "flows.cli.main", "lab", "up", str(home / "trio.yaml")]
    process = subprocess.Popen(command, cwd=home, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if "starting the router" in line:
            break
    process.kill()
    process.wait()
    process.stderr.close()
    if "StageTimeout" in lines[-1]:
        pytest.skip(f"this machine is too busy to bring a lab up: {lines[-1]}")
    assert "starting the router" in lines[-1], "".join(lines)
    before = {c.id for c in ours(engine)}
    assert len(before) == len(spec.machines) and lab.status().state is None
    said: list[str] = []
    lab.up(spec, say=said.append)
    assert sum(line.startswith("left over from before: container ") for line in said) == len(before)
    assert any(line.startswith("left over from before: process ") for line in said)
    assert lab.status().whole and before.isdisjoint(c.id for c in ours(engine))
    assert len([p for p in marked(lab_identity()) if "flows.lab.router" in p.cmdline()]) == 1


def test_up_twice_is_one_lab_and_another_is_refused(state: LabState, spec: LabSpec) -> None:
    before = lab.status()
    assert before.whole
    assert lab.up(spec) == state
    assert lab.status() == before
    with pytest.raises(InputError, match="lab trio is up, and differs"):
        lab.up(spec.model_copy(update={"name": "other"}))


def test_the_lab_is_a_cluster_and_its_status_is_seen(state: LabState, home: Path) -> None:
    assert profile_parameters("lab") == {"cluster": {"kind": "lab", "address": state.address, "name": "trio"}}
    done = subprocess.run([sys.executable, "-m", "flows.cli.main", "lab", "status", "--json"], cwd=home, capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "name": "trio", "up": True, "address": state.address, "head": True, "router": True,
        "machines": {"near-fast": "running", "near-slow": "running", "far-slow": "running"}}


def test_a_round_trip_takes_twice_the_latency(state: LabState, spec: LabSpec, engine: docker.DockerClient) -> None:
    """Of a connection that is refused: no program of ours is at the other end."""
    containers = {c.labels[MACHINE_LABEL]: c for c in ours(engine)}
    for source, target, link in spec.pairs():
        said = containers[source].exec_run([sys.executable, "-c", _RTT, state.addresses[target]])
        assert said.exit_code == 0, said.output
        assert float(said.output) == pytest.approx(2 * link.latency_ms / 1e3, abs=2e-3), (source, target)


@pytest.mark.quiet
def test_profile_finds_what_the_lab_was_made_of(state: LabState, spec: LabSpec) -> None:
    found: list[dict[str, float]] = []
    failed: list[str] = []
    for _ in range(5):
        try:
            found.append(figures(profile_ray(state.address, kind="lab", name="trio", seconds=3, strict=True)))
        except HetrlError as error:  # a probe's deadline, on a machine that has better things to do
            failed.append(error.line)
            continue
        if not faults(found[-1], spec):
            return
    wrong = faults({key: statistics.median(f[key] for f in found) for key in found[0]}, spec) if found else {}
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    if wrong and load > 1.5:
        pytest.skip(f"{load:.1f} programs a core wait for this machine: {wrong} say nothing about the lab")
    assert found and not wrong, f"off: {wrong}; measured: {found}; failed: {failed}"


def figures(topology: Topology) -> dict[str, float]:
    rates = {d.machine: d.achieved_flops_per_s.value for d in topology.devices if d.achieved_flops_per_s}
    found = {f"rate of {name}": rate / rates["near-fast"] for name, rate in rates.items()}
    for link in topology.links:
        if link.source != link.target:
            assert link.bandwidth_bytes_per_s is not None and link.latency_s is not None
            found[f"latency {link.source} → {link.target}"] = link.latency_s
            found[f"bandwidth {link.source} → {link.target}"] = link.bandwidth_bytes_per_s
    return found


def faults(found: dict[str, float], spec: LabSpec) -> dict[str, tuple[float, float]]:
    """What is off, with what it should be: rates and bandwidths by more than 10 %, latencies by more than 2 ms."""
    fast = spec.machines[0].cpus
    expected: dict[str, tuple[float, Callable[[float, float], bool]]] = {}
    for machine in spec.machines:
        expected[f"rate of {machine.name}"] = (machine.cpus / fast, lambda got, want: abs(got / want - 1) <= 0.1)
    for a, b, link in spec.pairs():
        expected[f"latency {a} → {b}"] = (link.latency_ms / 1e3, lambda got, want: abs(got - want) <= 2e-3)
        expected[f"bandwidth {a} → {b}"] = (link.bandwidth_mbit_per_s * 1e6 / 8, lambda got, want: abs(got / want - 1) <= 0.1)
    assert set(found) == set(expected)
    return {key: (found[key], want) for key, (want, right) in expected.items() if not right(found[key], want)}


def test_without_its_router_machines_are_unreachable_and_up_makes_it_anew(state: LabState, spec: LabSpec, engine: docker.DockerClient) -> None:
    """After a crash of the router nobody is suddenly near; ``down`` removes what is left."""
    identity = lab_identity()
    (router,) = [p for p in marked(identity) if "flows.lab.router" in p.cmdline()]
    router.kill()
    psutil.wait_procs([router], timeout=10)
    assert not lab.status().whole
    containers = {c.labels[MACHINE_LABEL]: c for c in ours(engine)}
    tried = containers["near-fast"].exec_run([sys.executable, "-c", _RTT, state.addresses["far-slow"]])
    assert b"No route to host" in tried.output
    (network,) = engine.networks.list(filters={"label": f"{LABEL}={identity}"})
    bridge, subnet = f"br-{network.id[:12]}", state.addresses["near-fast"].rsplit(".", 1)[0]

    removed = lab.down()
    assert sum(what.startswith("container ") for what in removed) == len(spec.machines)
    assert ours(engine) == []
    assert engine.networks.list(filters={"label": f"{LABEL}={identity}"}) == []
    assert engine.images.list(name=f"hetrl/lab-{identity}") == []
    assert marked(identity) == []
    assert not Path(f"/sys/class/net/{bridge}").exists()
    assert hexadecimal(subnet) not in Path("/proc/net/route").read_text()
    assert list(Path("/sys/fs/cgroup").glob(f"**/hetrllab{identity}*")) == []
    assert list(Path("/tmp").glob(f"hetrl-lab-{identity}*")) == []
    assert not (Path(os.environ["HETRL_HOME"]) / "lab").exists()
    again = CliRunner().invoke(app, ["lab", "down"])
    assert (again.exit_code, again.output) == (0, "no lab is up\n"), "a second time there is nothing to remove"
    with pytest.raises(InputError, match="no lab is up here"):
        profile_parameters("lab")


def test_up_that_fails_leaves_nothing(spec: LabSpec, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "_start_router", lambda *_: (_ for _ in ()).throw(RunnerUnavailable("no router today")))
    with pytest.raises(RunnerUnavailable, match="no router today"):
        lab.up(spec)
    assert ours(engine) == []
    assert marked(lab_identity()) == []
    assert lab.status().state is None


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for refused in (lab.check_allowed, lab.down):
        with pytest.raises(RunnerUnavailable, match="the lab needs root"):
            refused()


def ours(engine: docker.DockerClient) -> list[docker.models.containers.Container]:
    return list(engine.containers.list(all=True, filters={"label": f"{LABEL}={lab_identity()}"}, ignore_removed=True))


def marked(identity: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HETRL_LAB") == identity:
                found.append(process)
    return found


def hexadecimal(subnet: str) -> str:
    """The first three bytes of an address as /proc/net/route has them."""
    return "".join(f"{int(part):02X}" for part in reversed(subnet.split(".")))
