"""Ranks on a real, uneven Ray cluster: exactly where asked, in any order, with deadlines that say what is missing."""

from __future__ import annotations

import dataclasses
import os
import random
import time

import psutil
import pytest

from artifacts.errors import ClusterChanged, InputError, StageTimeout
from artifacts.topology import Topology
from stages.cluster import Cluster, device_resource, machine_resource, pinned_groups, probe, remove_groups
from tests.stages.cluster.fleets import fleet

pytestmark = pytest.mark.engine
DEVICES = ["a-0", "a-1", "a-2", "b-0", "c-0", "c-1"]


def free_gpus(cluster: Cluster) -> dict[str, float]:
    import ray

    left = ray._private.state.available_resources_per_node()
    return {machine: left.get(node, {}).get("GPU", 0) for machine, node in cluster.node_ids.items()}


def wait_until_free(cluster: Cluster, gpus: dict[str, float]) -> None:
    until = time.monotonic() + 120
    while free_gpus(cluster) != gpus and time.monotonic() < until:
        time.sleep(0.1)
    assert free_gpus(cluster) == gpus


def test_a_node_a_machine_with_its_devices(uneven: Cluster) -> None:
    assert len(set(uneven.node_ids.values())) == 3
    assert {m: r["GPU"] for m, r in uneven.resources_by_machine.items()} == {"a": 3, "b": 1, "c": 2}
    for machine, devices in {"a": DEVICES[:3], "b": DEVICES[3:4], "c": DEVICES[4:]}.items():
        declared = uneven.resources_by_machine[machine]
        assert {r for r in declared if r.startswith("device:")} == {device_resource(d) for d in devices}
        assert machine_resource(machine) in declared


@pytest.mark.parametrize("seed", [1, 2])
def test_ranks_sit_where_asked_whatever_their_order(uneven: Cluster, seed: int) -> None:
    order = random.Random(seed).sample(DEVICES, len(DEVICES))
    groups = pinned_groups(uneven, order, name="actor", colocated=3)
    try:
        found = probe(uneven, groups, deadline_s=120)
    finally:
        remove_groups(groups)
    assert [f.device for f in found] == order
    assert [f.machine for f in found] == [d[0] for d in order]
    assert [f.device_uuid for f in found] == [f"uuid-{d}" for d in order]
    assert [f.node_id for f in found] == [uneven.node_ids[d[0]] for d in order]
    assert [f.rank for f in found] == list(range(6)) and len({f.pid for f in found}) == 6
    wait_until_free(uneven, {"a": 3, "b": 1, "c": 2})


def test_workers_get_the_environment(uneven: Cluster) -> None:
    import ray

    read = ray.remote(num_cpus=0)(lambda: (os.environ["HETRL_TEST"], os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"]))
    assert ray.get(read.remote(), timeout=300) == ("seen", "0")


def test_a_device_that_is_taken_is_a_timeout_that_says_who_falls_short(uneven: Cluster) -> None:
    first = pinned_groups(uneven, ["b-0"], name="first")
    try:
        with pytest.raises(StageTimeout) as caught:
            pinned_groups(uneven, ["a-0", "b-0"], name="second", deadline_s=5)
        assert "second: 1 of 2 ranks not placed within 5 s" in caught.value.message
        assert "b falls short of GPU: asked 1, free 0 of 1" in caught.value.message
        assert "device b-0: asked 1, free 0 of 1" in caught.value.message
        wait_until_free(uneven, {"a": 3, "b": 0, "c": 2})  # what was placed for the second is given back
    finally:
        remove_groups(first)
    wait_until_free(uneven, {"a": 3, "b": 1, "c": 2})


def test_cpus_count_by_node(uneven: Cluster) -> None:
    with pytest.raises(StageTimeout, match=r"b falls short of CPU: asked 100, free 64 of 64"):
        pinned_groups(uneven, ["b-0"], name="greedy", cpus_per_rank=100, deadline_s=1)
    wait_until_free(uneven, {"a": 3, "b": 1, "c": 2})


def test_a_device_nobody_has(uneven: Cluster) -> None:
    with pytest.raises(InputError, match=r"no device 'b-1'.*") as caught:
        pinned_groups(uneven, ["b-1"], name="actor")
    assert "b-0" in caught.value.fix
    grown = dataclasses.replace(uneven, topology=fleet({"a": 3, "b": 2, "c": 2}))
    with pytest.raises(ClusterChanged, match="node of b does not declare device b-1"):
        pinned_groups(grown, ["b-1"], name="actor")
    with pytest.raises(InputError, match="twice"):
        pinned_groups(uneven, ["b-0", "b-0"], name="actor")


def gpus_of(topology: Topology) -> Topology:
    """The same fleet with GPUs, whose UUIDs are those the stand-in driver of the next test reports."""
    devices = [d.model_copy(update={"vendor": "nvidia"}) for d in topology.devices]
    return Topology(cluster=topology.cluster, machines=topology.machines, devices=devices, links=topology.links)


def test_gpus_are_told_apart_by_uuid(uneven: Cluster) -> None:
    cluster = dataclasses.replace(uneven, topology=gpus_of(uneven.topology))
    here = dict(uneven.node_ids)

    def uuid_of(visible: str) -> str:
        """A driver that counts backwards: Ray's index 0 is the machine's last device."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        machine = next(m for m, n in here.items() if n == node)
        return f"uuid-{machine}-{ {'a': 3, 'b': 1, 'c': 2}[machine] - 1 - int(visible)}"

    groups = pinned_groups(cluster, ["c-1", "a-0"], name="actor", deadline_s=120, uuid_of=uuid_of)
    try:
        wait_until_free(cluster, {"a": 2, "b": 1, "c": 1})
        assert [f.device for f in probe(cluster, groups, deadline_s=120, uuid_of=uuid_of)] == ["c-1", "a-0"]
    finally:
        remove_groups(groups)
    with pytest.raises(ClusterChanged, match=r"not among the free GPUs: b-0 of b; found none whose UUID could be read"):
        pinned_groups(cluster, ["b-0"], name="actor", deadline_s=120, uuid_of=lambda visible: "")
    wait_until_free(cluster, {"a": 3, "b": 1, "c": 2})


def test_all_of_ray_is_below_this_process_and_on_loopback(uneven: Cluster) -> None:
    ours = psutil.Process().children(recursive=True)
    assert sum("raylet" in p.name() for p in ours) == 3 and sum("gcs_server" in p.name() for p in ours) == 1
    listening = {c.laddr.ip for p in ours if p.is_running() for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert listening and listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
