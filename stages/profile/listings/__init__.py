"""Topologies of fleets from what other tools print of them: nvidia-smi, amd-smi, SLURM, Kubernetes."""

from stages.profile.listings.build import read_listings
from stages.profile.listings.kinds import kind_of, near_miss

__all__ = ["kind_of", "near_miss", "read_listings"]
