"""A store of files, and the stage run on it as anyone runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from artifacts.invocation import Outcome, StageRequest, parse_event
from artifacts.manifest import VersionRef
from artifacts.store import open_store
from artifacts.topology import Topology


class Bench:
    """A store and the means to run the stage on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store_url = (folder / "store").as_uri()

    def command(self, version: str, parameters: dict[str, Any], context: tuple[str, ...] = ()) -> list[str]:
        request = StageRequest(stage="profile", store=self.store_url, pipeline="p", version=version, parameters=parameters,
                               context={"topology": [VersionRef(stage="profile", version=c) for c in context]},
                               workdir=str(self.folder / "work"))
        path = self.folder / f"{version}.json"
        path.write_text(request.to_json())
        return [sys.executable, "-m", "stages.profile", "--request", str(path)]

    def run(self, version: str, parameters: dict[str, Any], context: tuple[str, ...] = ()) -> tuple[int, Outcome, list[Any]]:
        done = subprocess.run(self.command(version, parameters, context), capture_output=True, text=True, timeout=900, check=False)
        events = [parse_event(line) for line in done.stdout.splitlines()]
        assert isinstance(events[-1], Outcome), done.stderr
        assert "Traceback" not in done.stderr
        return done.returncode, events[-1], events

    def topology(self, version: str) -> Topology:
        return open_store(self.store_url, pipeline="p").read(VersionRef(stage="profile", version=version), Topology)
