"""Topologies of fleets that are described in YAML, not at hand."""

from stages.profile.inventory.build import read_inventory

__all__ = ["read_inventory"]
