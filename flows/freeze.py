"""The job, frozen into the store before a run."""

from __future__ import annotations

from datetime import UTC, datetime

from artifacts.job import Job
from artifacts.manifest import Producer, VersionRef
from artifacts.store import Store
from artifacts.version import hetrl_version
from flows.keys import KEY_LENGTH


def freeze_job(store: Store, job: Job) -> VersionRef:
    """The version of that job; the same job is the same version, however often it is frozen. It is not the latest by that."""
    version = job.identity()[:KEY_LENGTH]
    manifest = store.find("job", version)
    if manifest is None:
        writer = store.new_version("job", version)
        writer.put_document(job)
        now = datetime.now(UTC)
        summary = {"name": job.name, "algorithm": job.algorithm, "mode": job.mode}
        manifest = writer.commit(inputs={}, context={}, parameters={}, summary=summary,
                                 producer=Producer(hetrl=hetrl_version(), code_digest="", started_at=now, finished_at=now))
    return manifest.ref
