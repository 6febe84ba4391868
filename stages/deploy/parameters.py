"""Parameters of the deploy stage: every wait has a deadline."""

from __future__ import annotations

from pydantic import Field

from artifacts.base import Bytes, Strict
from artifacts.units import GIB
from stages.cluster.lease import WAIT_S


class Parameters(Strict):
    """Deadlines in seconds; all have a value that suits a loaded laptop."""

    address: str = Field(default="", description="Ray cluster to use instead of the topology's")
    start_deadline_s: float = Field(default=120, gt=0, le=3600, description="Ray nodes started, or the running cluster reached")
    check_deadline_s: float = Field(default=120, gt=0, le=3600, description="all nodes have said what they have")
    placement_deadline_s: float = Field(default=60, gt=0, le=3600, description="all ranks of one group have their place")
    probe_deadline_s: float = Field(default=180, gt=0, le=3600, description="all ranks of one group have said where they are")
    lease_wait_s: float = Field(default=WAIT_S, ge=0, le=86400, description="how long to wait for whoever holds the cluster")
    cpus_per_rank: float = Field(default=1, gt=0, le=1024, description="CPUs a rank reserves on its machine")
    min_disk_bytes: Bytes = Field(default=2 * GIB, description="free space needed where a machine keeps its working files")
