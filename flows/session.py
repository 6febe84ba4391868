"""Opens a run from what a person typed, in the terminal or in Prefect's form."""

from __future__ import annotations

import os
import re
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import InputError
from artifacts.job import load_job
from artifacts.store import open_store
from flows.budget import schedule_parameters
from flows.cluster import check_runner, profile_parameters
from flows.graph import Selection, StageName
from flows.launch import make_runner
from flows.pipeline import Pipeline, RunOptions
from flows.services.state import home, running_store

DEFAULT_JOB = "infra/jobs/tiny-grpo.yaml"


@dataclass(frozen=True)
class RunRequest:
    """The options of a run, as typed. ``job`` and ``cluster`` None: not given."""

    job: str | None = None
    overrides: tuple[str, ...] = ()
    cluster: str | None = None
    store: str = ""
    pipeline: str = "hetrl"
    runner: str = "process"
    from_stage: StageName | None = None
    until_stage: StageName | None = None
    only: StageName | None = None
    force: bool = False
    topology: str = ""
    solver: str = ""
    budget: str = ""
    seed: int | None = None
    warm: bool = False
    prefer_stable: bool = False


def default_store() -> str:
    """``HETRL_STORE``, else the embedded S3 server when ``hetrl up`` runs it, else a folder below ``.hetrl``."""
    return os.environ.get("HETRL_STORE") or running_store() or Path(".hetrl/store").absolute().as_uri()


def new_run_id() -> str:
    return uuid.uuid4().hex[:12]


def open_run(request: RunRequest, *, run_id: str) -> Pipeline:
    """A prepared pipeline. Everything a user can get wrong is found here, before anything runs.

    Raises:
        InputError: the job, the cluster or the selection cannot be.
        RunnerUnavailable: the runner asked for is not there.
        StoreError: the store cannot be reached.
    """
    selection = Selection.of(from_stage=request.from_stage, until_stage=request.until_stage, only=request.only)
    first = selection.stages[0]
    job_path = request.job or (DEFAULT_JOB if first == "profile" and selection.stages != ("profile",) else None)
    if request.overrides and job_path is None:
        raise InputError("--set changes a field of a job, but no job is given", fix="add --job")
    job = load_job(job_path, list(request.overrides)) if job_path else None
    cluster = profile_parameters(request.cluster or "local") if first == "profile" or request.cluster else None
    if cluster:
        check_runner(cluster["cluster"]["kind"], request.runner)
    if cluster and cluster["cluster"]["kind"] == "local" and request.runner == "docker":
        cluster = cluster | {"machine": re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())}  # a container's own name is a random one
    url = request.store or default_store()
    schedule = schedule_parameters(solver=request.solver, budget=request.budget, seed=request.seed)
    options = RunOptions(store_url=url, pipeline=request.pipeline, job=job, cluster=cluster, selection=selection, force=request.force,
                         topology=request.topology, run_id=run_id, warm=request.warm, prefer_stable=request.prefer_stable,
                         workdir=home() / "work", parameters={"schedule": schedule})
    pipeline = Pipeline(open_store(url, pipeline=request.pipeline), make_runner(request.runner), options)
    pipeline.prepare()
    return pipeline
