"""Topologies of fleets from what other tools print of them: nvidia-smi, amd-smi, SLURM, Kubernetes."""

from stages.profile.listings.build import read_listings
from stages.profile.listings.kinds import kind_of

__all__ = ["kind_of", "read_listings"]
