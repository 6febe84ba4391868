"""One stage by itself on documents: what goes in is put into a store of its own, and what it made is read while that store is there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from artifacts.base import Document
from artifacts.errors import InputError
from artifacts.invocation import StageRequest
from artifacts.manifest import VersionRef
from artifacts.store import Store, open_store
from flows.given import put_given
from flows.graph import StageName
from flows.launch import StageRunner
from flows.launch.base import OnEvent

D = TypeVar("D", bound=Document)


@dataclass(frozen=True)
class Alone:
    """What a stage made: its summary, and its files for as long as the store is there."""

    summary: dict[str, Any]
    ref: VersionRef
    files: list[str]
    store: Store

    def read(self, cls: type[D]) -> D:
        return self.store.read(self.ref, cls)

    def export(self, out: Path) -> list[Path]:
        """Copy the files to a folder; raises ``InputError`` where it cannot be written."""
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {out}: {error.strerror}", fix="choose a folder you may write to") from None
        for name in self.files:
            self.store.read_file(self.ref, name, out / name)
        return [out / name for name in self.files]


@contextmanager
def run_alone(stage: StageName, inputs: dict[str, Any], parameters: dict[str, Any], *, runner: StageRunner, on_event: OnEvent,
              while_running: Callable[[Path], AbstractContextManager[None]] = lambda workdir: nullcontext(),
              on_start: Callable[[str], None] = lambda run_id: None, folder: Path | None = None,
              context: dict[str, Any] | None = None) -> Iterator[Alone]:
    """Run a stage on documents by the name of their artifact; ``context``: earlier ones to compare with.

    ``while_running`` is entered around the stage, with its work folder; ``on_start`` is told the run's id, by which the runner can stop it;
    ``folder`` is where its store is for the time, else the usual place for temporary files. Raises what the stage raised.
    """
    with tempfile.TemporaryDirectory(prefix="hetrl-", dir=folder) as scratch:
        url = (Path(scratch) / "store").as_uri()
        store = open_store(url, pipeline="files")
        given = put_given(store, inputs)
        earlier = {name: [ref] for name, ref in put_given(store, context or {}).items()}
        request = StageRequest(stage=stage, store=url, pipeline="files", version="out", inputs=given, context=earlier,
                               parameters=parameters, run_id=Path(scratch).name, runner=runner.name, workdir=str(Path(scratch) / "work"))
        on_start(request.run_id)
        with while_running(Path(request.workdir)):
            done = runner.run(request, on_event=on_event)
        ref = VersionRef(stage=stage, version="out")
        yield Alone(done.outcome.summary, ref, list(store.manifest(ref).files), store)
