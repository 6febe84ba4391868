"""What a job names of this machine, for stages that would not see it otherwise: those in containers."""

from __future__ import annotations

from pathlib import Path

from artifacts.job import Job
from flows.graph import StageName
from flows.launch.base import Mount

READERS: tuple[StageName, ...] = ("deploy", "train")
"""The stages that open the files themselves; the others read only the job."""


def named_files(job: Job) -> list[Mount]:
    """The job's model folders and data files that are here, each at its own path and read-only. Whatever else it names is left out:
    a Hugging Face id, and what is not here, which deploy's preflight reports."""
    paths = {Path(model.hf_id) for model in job.models.values()}
    if job.dataset.kind == "parquet":
        paths |= {Path(job.dataset.train_file), Path(job.dataset.validation_file)}
    here = {path for path in paths if path.is_absolute() and path.exists()}
    # A download's folder holds links to files beside it.
    linked = {file.resolve().parent for folder in here if folder.is_dir() for file in folder.iterdir() if file.is_symlink()}
    return [Mount(path, str(path)) for path in sorted(here | linked)]
