"""Stops what crashed runs left behind, with every runner that is there."""

from __future__ import annotations

from artifacts.errors import RunnerUnavailable
from flows.launch import make_runner


def sweep_all() -> list[str]:
    """Names of what was stopped. A runner that is not there has left nothing."""
    swept: list[str] = []
    for name in ("process", "docker"):
        try:
            swept += make_runner(name).sweep()
        except RunnerUnavailable:
            continue
    return swept
