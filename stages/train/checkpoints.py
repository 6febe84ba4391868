"""Checkpoints of a training in the store: what an interrupted run leaves for the next.

Each is a version of its own, ``checkpoint@<version of the train stage>-<iteration>``, committed whole or not at all while the version of
the train stage itself is still to come. Only the last is kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from artifacts.checkpoint import Checkpoint, CheckpointFile
from artifacts.errors import HetrlError, StoreError
from artifacts.job import Job
from artifacts.manifest import Manifest, Producer, VersionRef
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from artifacts.version import hetrl_version
from stages.contract import StageContext
from stages.train.log import FILE

STAGE = "checkpoint"
_SLASH = "--"
"""Stands for a slash where a file of a folder has a plain name in the store."""


@dataclass(frozen=True)
class Resumed:
    """A checkpoint fetched for a run that goes on: ``folder`` is as the engine left it, ``log`` what was measured up to ``step``."""

    step: int
    folder: Path
    log: Throughput


class Checkpoints:
    """Those of one job on one cluster. Use while the cluster is held: another run of the job would take them over."""

    def __init__(self, context: StageContext, job: Job, topology: Topology) -> None:
        self._context, self._store = context, context.store
        self._train = context.request.version
        self._of = {"job": job.identity(), "cluster": topology.cluster.name}
        self._kept: list[VersionRef] = []

    def resume(self, folder: Path) -> Resumed | None:
        """The furthest checkpoint of a run of this job that was interrupted, below ``folder``; None where there is none to be read.

        That run may have had another plan. Checkpoints of runs that have finished since are removed.
        """
        found = sorted(self._interrupted(), key=lambda m: int(m.parameters["step"]), reverse=True)
        self._kept = [manifest.ref for manifest in found]
        for manifest in found:
            try:
                return self._fetch(manifest, folder)
            except HetrlError as error:
                self._context.log(f"left out {manifest.ref}: {error.message}", level="warning")
        return None

    def save(self, step: int, folder: Path, log: Throughput) -> None:
        """Store what an engine wrote below ``folder`` after ``step`` iterations, and remove it there; earlier ones go."""
        writer = self._store.new_version(STAGE, f"{self._train}-{step:07d}")
        files = []
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = path.relative_to(folder.parent).as_posix()
            entry = writer.put_file(_stored(name), path)
            files.append(CheckpointFile(name=name, sha256=entry.sha256, size_bytes=entry.size_bytes))
        writer.put_document(Checkpoint(step=step, format="verl", files=files, resumable=True))
        writer.put_bytes(FILE, log.to_jsonl().encode(), identity=log.identity())
        request, now = self._context.request, datetime.now(UTC)
        manifest = writer.commit(
            inputs=request.inputs, parameters={**self._of, "train": self._train, "step": step},
            summary={"step": step, "bytes": sum(f.size_bytes for f in files)},
            producer=Producer(hetrl=hetrl_version(), code_digest=request.code_digest, image_digest=request.image_digest,
                              runner=request.runner, run_id=request.run_id, started_at=now, finished_at=now))
        for ref in self._kept:
            self._store.remove(ref)
        self._kept = [manifest.ref]
        shutil.rmtree(folder, ignore_errors=True)

    def _interrupted(self) -> Iterator[Manifest]:
        for ref in self._store.versions(STAGE):
            try:
                manifest = self._store.manifest(ref)
            except StoreError as error:
                self._context.log(f"left out {ref}: {error.message}", level="warning")
                continue
            if self._store.find(self._context.request.stage, str(manifest.parameters["train"])) is not None:
                self._store.remove(ref)
            elif _same(manifest.parameters, self._of):
                yield manifest

    def _fetch(self, manifest: Manifest, below: Path) -> Resumed:
        checkpoint = self._store.read(manifest.ref, Checkpoint)
        log = Throughput.from_jsonl(self._store.read_bytes(manifest.ref, FILE), where=f"{FILE} of {manifest.ref}")
        shutil.rmtree(below, ignore_errors=True)
        for file in checkpoint.files:
            target = below / file.name
            if not target.resolve().is_relative_to(below.resolve()):
                raise StoreError(f"{manifest.ref} names a file outside its folder: {file.name!r}")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._store.read_file(manifest.ref, _stored(file.name), target)
        (folder,) = below.iterdir()
        return Resumed(checkpoint.step, folder, log)


def _same(parameters: dict[str, Any], of: dict[str, str]) -> bool:
    return all(parameters.get(name) == value for name, value in of.items())


def _stored(name: str) -> str:
    return name.replace("/", _SLASH)
