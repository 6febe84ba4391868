"""verl's own worker group over the plan's ranks: pools of 3, 1 and 2 devices, in an order that is nobody's but the plan's."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from stages.cluster import open_cluster, pinned_groups, remove_groups
from stages.train.engines.verl.environment import environment
from stages.train.engines.verl.placement import PoolSpec, compare
from tests.stages.train.support import topology

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]


def test_ranks_of_a_worker_group_are_the_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl sorts its own groups by address, takes all machines for equally large, and waits without limit (ray/base.py): rank r must be on
    device r. The groups are made in another order than that of the ranks, so Ray's order of them is no help."""
    pytest.importorskip("verl")
    fleet = topology(3, 1, 2)
    ranks = ["m2-d1", "m0-d2", "m1-d0", "m0-d0", "m2-d0", "m0-d1"]
    made = random.Random(7).sample(ranks, len(ranks))
    assert made != ranks
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with open_cluster(fleet, env=environment(tmp_path), workdir=tmp_path) as cluster:
        import ray
        from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup

        from stages.train.engines.verl import plugin_cpu  # noqa: F401  verl is imported already, without what the environment names
        from stages.train.engines.verl.pools import PinnedPool
        from tests.stages.train.light_worker import LightWorker

        groups = dict(zip(made, pinned_groups(cluster, made, name="all"), strict=True))
        spec = PoolSpec("all", tuple(ranks), ("actor",))
        pool = PinnedPool(spec, [groups[device] for device in ranks])
        workers = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(LightWorker)), bin_pack=False,
                                 name_prefix="light", use_gpu=True, device_name="cpu")
        found = workers.place()
        compare(spec, found, topology=fleet, node_of_machine=cluster.node_ids)
        assert [(place["rank"], place["world"]) for place in found] == [(rank, 6) for rank in range(6)]
        assert len({place["pid"] for place in found} | {os.getpid()}) == 7
        remove_groups(list(groups.values()))
