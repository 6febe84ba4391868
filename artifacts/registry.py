"""Every document by its name."""

from __future__ import annotations

from artifacts.base import Document
from artifacts.calibration import Calibration
from artifacts.checkpoint import Checkpoint
from artifacts.deployment import Deployment
from artifacts.invocation import StageRequest
from artifacts.job import Job
from artifacts.manifest import LeaseRecord, Manifest
from artifacts.plan import Plan
from artifacts.plan_diff import PlanDiff
from artifacts.prediction import Prediction
from artifacts.search import Search
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from artifacts.validation import Validation

DOCUMENTS: dict[str, type[Document]] = {
    cls.artifact: cls
    for cls in (Job, Topology, Plan, Prediction, Search, Deployment, Throughput, Checkpoint, Validation, Calibration,
                PlanDiff, Manifest, LeaseRecord, StageRequest)
}
