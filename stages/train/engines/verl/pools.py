"""The plan's ranks as pools verl can launch on: one pinned placement group a rank, in Megatron's rank order."""

from __future__ import annotations

from typing import Any

from verl.single_controller.ray.base import ResourcePoolManager, SubRayResourcePool

from stages.train.engines.verl.placement import PoolSpec


class PinnedPool(SubRayResourcePool):
    """A pool over placement groups that exist. One bundle a group makes verl take the groups as they come: rank r on group r,
    instead of sorting by address."""

    def __init__(self, spec: PoolSpec, groups: list[Any]) -> None:
        ranks = len(spec.devices)
        super().__init__(placement_groups=groups, start_bundle_index=0, subgroup_world_size=ranks, process_on_nodes=[1] * ranks,
                         name_prefix=spec.name, max_colocate_count=spec.processes)


class PinnedPools(ResourcePoolManager):
    """verl's manager, with the pools already made."""

    def __init__(self, pools: dict[str, PinnedPool], mapping: dict[Any, str]) -> None:
        super().__init__(resource_pool_spec={name: [1] * pool.world_size for name, pool in pools.items()}, mapping=mapping)
        self.resource_pool_dict.update(pools)

    def create_resource_pool(self) -> None:
        """Nothing to create, nothing to check: the groups are placed."""
