"""The lab's machines as containers on a network of their own, all with the lab's label."""

from __future__ import annotations

import ipaddress
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.types import EndpointConfig, IPAMConfig, IPAMPool, LogConfig

from artifacts.errors import RunnerUnavailable, StageTimeout
from artifacts.units import GIB
from flows.lab import software
from flows.lab.node import READY, NodeConfig
from flows.lab.spec import LabMachine
from flows.lab.weight import LabGroup
from flows.launch.engine import ENGINE_ERRORS, connect, refused

LABEL, MACHINE_LABEL = "hetrl.lab", "hetrl.lab.machine"
_PERIOD_US = 20_000
"""Shorter than the usual 100 ms: a machine that has used up its part is away for less long."""
_RAY_CPUS = 0.016
"""What an idle Ray node takes by itself (seen: 0.013 to 0.018 cores). It comes on top of the quota, which is for the work."""
_FIRST_ADDRESS = 10
_SUBNETS = 16
_CPUS_PER_DEVICE = 16
_CPUS = 64


@dataclass(frozen=True)
class LabNetwork:
    name: str
    gateway: str
    addresses: dict[str, str]


class LabEngine:
    """The Docker engine, for one lab: ``identity`` is in the label and the names of all it makes."""

    def __init__(self, identity: str) -> None:
        self._client = connect()
        self._identity = identity
        self._image = f"hetrl/lab-{identity}"
        self._prefix = f"hetrl-lab-{identity}"
        with _asked("say what it has"):
            info = self._client.info()
        self.cores = int(info["NCPU"])
        self._group = LabGroup(identity, driver=str(info.get("CgroupDriver", "")))

    def make_network(self, machines: list[str]) -> LabNetwork:
        """A network without a way out, and an address for every machine."""
        with _asked("make a network"):
            subnet = self._free_subnet()
        gateway = str(subnet[1])
        return LabNetwork(self._prefix, gateway, {name: str(subnet[_FIRST_ADDRESS + i]) for i, name in enumerate(machines)})

    def _free_subnet(self) -> ipaddress.IPv4Network:
        """Of the network that is made with it; the engine refuses what it or this machine's routes use already."""
        first = zlib.crc32(self._identity.encode())
        for attempt in range(_SUBNETS):
            subnet = ipaddress.IPv4Network(f"10.213.{(first + attempt) % 256}.0/24")
            pool = IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))
            try:
                self._client.networks.create(self._prefix, driver="bridge", internal=True, labels=self._labels(),
                                             ipam=IPAMConfig(pool_configs=[pool]))
                return subnet
            except APIError as error:
                if "overlaps" not in str(error.explanation) or attempt + 1 == _SUBNETS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def start(self, machine: LabMachine, network: LabNetwork, *, gcs: str, folder: str, work: Path) -> None:
        """The machine's container, with all of this machine's processors until :meth:`limit`."""
        devices = {f"device:{machine.name}-{i}": 1.0 for i in range(machine.devices)}
        node = NodeConfig(address=network.addresses[machine.name], gcs=gcs, folder=folder,
                          cpus=max(_CPUS, _CPUS_PER_DEVICE * machine.devices), gpus=machine.devices,
                          resources={f"machine:{machine.name}": 1.0, **devices},
                          labels={"ray.io/availability-region": machine.region} if machine.region else {})
        with _asked(f"start machine {machine.name}"):
            api = self._client.api
            config = api.create_host_config(
                network_mode=network.name, mounts=software.mounts(work), mem_limit=int(machine.memory_gib * GIB),
                memswap_limit=int(machine.memory_gib * GIB), init=True, read_only=True, cgroup_parent=self._group.parent, cap_drop=["ALL"],
                security_opt=["no-new-privileges"], tmpfs={"/tmp": "size=4g,exec"}, shm_size=512 << 20, pids_limit=4096,
                log_config=LogConfig(type="json-file", config={"max-size": "4m"}))
            created = api.create_container(
                self._image, command=software.command("flows.lab.node", node.model_dump_json()), name=f"{self._prefix}-{machine.name}",
                hostname=machine.name, labels={**self._labels(), MACHINE_LABEL: machine.name}, host_config=config,
                environment={**software.environment(), "HOME": "/tmp"},
                networking_config=api.create_networking_config({network.name: EndpointConfig(
                    version=api.api_version, ipv4_address=network.addresses[machine.name])}))
            api.start(created["Id"])
        self._group.put_first()

    def wait_ready(self, *, within_s: float) -> None:
        """Until Ray runs in every machine."""
        until = time.monotonic() + within_s
        waiting = self.machines()
        while waiting:
            for name, container in list(waiting.items()):
                with _asked(f"look at machine {name}"):
                    said = container.logs(stdout=True, stderr=True).decode(errors="replace")
                    container.reload()
                if READY in said:
                    del waiting[name]
                elif container.status != "running":
                    raise RunnerUnavailable(f"machine {name} of the lab ended while starting: {_last(said)}",
                                            fix="give it more memory, or see whether Ray starts on this machine")
            if waiting and time.monotonic() > until:
                raise StageTimeout(f"Ray was not ready in {', '.join(sorted(waiting))} within {within_s:.0f} s",
                                   fix="stop what else loads this machine")
            time.sleep(0.2)

    def limit(self, cpus: Mapping[str, float]) -> None:
        """The quotas, from now on. Ray's start is not held up by them."""
        for name, container in self.machines().items():
            with _asked(f"limit machine {name} to {cpus[name]:g} cores"):
                container.update(cpu_period=_PERIOD_US, cpu_quota=round((cpus[name] + _RAY_CPUS) * _PERIOD_US))

    def processes(self) -> dict[str, int]:
        """Machine → the id of its first process, as this machine counts them."""
        return {name: int(c.attrs["State"]["Pid"]) for name, c in self.machines().items()}

    def machines(self) -> dict[str, Container]:
        """Machine → its container, running or not."""
        with _asked("list the lab's machines"):
            return {c.labels[MACHINE_LABEL]: c for c in self._client.containers.list(all=True, filters=self._filter(), ignore_removed=True)
                    if MACHINE_LABEL in c.labels}

    def make_image(self) -> None:
        with _asked("import the machines' image"):
            self._client.api.import_image_from_data(software.image_archive(), repository=self._image,
                                                    changes=[f"LABEL {LABEL}={self._identity}"])

    def remove_all(self) -> list[str]:
        """Everything with the lab's label; what was there, in words."""
        removed = []
        with _asked("remove the lab's machines"):
            for container in self._client.containers.list(all=True, filters=self._filter(), ignore_removed=True):
                _if_there(lambda c=container: c.remove(force=True, v=True))
                removed.append(f"container {container.name}")
            for network in self._client.networks.list(filters=self._filter()):
                _if_there(network.remove)
                removed.append(f"network {network.name}")
            for image in self._client.images.list(name=self._image):
                _if_there(lambda i=image: self._client.images.remove(i.id, force=True))
        return removed + ([f"control group {self._group.name}"] if self._group.remove() else [])

    def close(self) -> None:
        self._client.close()

    def _labels(self) -> dict[str, str]:
        return {LABEL: self._identity}

    def _filter(self) -> dict[str, str]:
        return {"label": f"{LABEL}={self._identity}"}


@contextmanager
def _asked(what: str) -> Iterator[None]:
    try:
        yield
    except ENGINE_ERRORS as error:
        raise refused(error, what) from None


def _if_there(remove: Any) -> None:
    try:
        remove()
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != 409 or "already in progress" not in str(error.explanation):
            raise


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
