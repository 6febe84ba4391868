"""Topologies of fleets that are described in YAML, not at hand."""

from stages.profile.inventory.build import build, read_inventory

__all__ = ["build", "read_inventory"]
