"""Where the embedded services keep their things, and how a run finds the store that ``hetrl up`` started."""

from __future__ import annotations

import os
from pathlib import Path

from flows.services.s3 import S3Server, running_s3

BUCKET = "hetrl"


def home() -> Path:
    """``HETRL_HOME``, else ``.hetrl`` in the current folder."""
    return Path(os.environ.get("HETRL_HOME") or ".hetrl").absolute()


def embedded_s3() -> S3Server | None:
    return running_s3(home() / "s3")


def store_url() -> str:
    return f"s3://{BUCKET}/store"


def service_environment(server: S3Server) -> dict[str, str]:
    """What a run needs to use the embedded store and to show a person where things are. Holds the secret."""
    return {**server.environment(), "HETRL_BROWSE": f"{server.browser}{store_url().removeprefix('s3://')}"}


def running_store() -> str | None:
    """The embedded store's URL when its server runs; its address and credentials are put into this process's environment."""
    server = embedded_s3()
    if server is None:
        return None
    os.environ.update(service_environment(server))
    return store_url()
