"""Topologies of live Ray clusters: an agent on every node probes its machine, and the links to the others."""

from stages.profile.fleet.profile import RaySource, draft_ray, profile_ray

__all__ = ["RaySource", "draft_ray", "profile_ray"]
