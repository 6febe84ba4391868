"""A failure inside Ray is one line that keeps the root cause."""

from __future__ import annotations

import pytest

from artifacts.errors import StageCrashed
from stages.train.engines.verl.failures import crashed

exceptions = pytest.importorskip("ray.exceptions")


def test_the_root_cause_of_a_failed_call_is_named() -> None:
    inner = exceptions.RayTaskError("train", "a long\ntraceback", ValueError("shares do not fit\nmore"))
    outer = exceptions.RayTaskError("WorkerDict.update_actor", "another", inner)
    error = crashed(outer)
    assert isinstance(error, StageCrashed)
    assert error.message == "verl failed in WorkerDict.update_actor: ValueError: shares do not fit"
    assert "\n" not in error.line


def test_a_full_disk_elsewhere_is_told_apart() -> None:
    error = crashed(exceptions.RayTaskError("save", "OSError: [Errno 28] No space left on device: 'x'", OSError(28, "No space left on device")))
    assert "is full" in error.message


def test_a_lost_cluster_is_told_apart() -> None:
    assert crashed(exceptions.RaySystemError("gone")).message.startswith("the training lost its cluster: RaySystemError")
