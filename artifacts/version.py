"""The installed version of HetRL."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def hetrl_version() -> str:
    try:
        return version("hetrl")
    except PackageNotFoundError:
        return "0+source"
