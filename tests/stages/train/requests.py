"""A store with everything the train stage reads, and the request to run it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from artifacts.base import Document
from artifacts.deployment import Deployment
from artifacts.invocation import StageRequest
from artifacts.job import Job
from artifacts.manifest import Producer
from artifacts.plan import Plan
from artifacts.store import open_store
from artifacts.topology import Topology
from tests.stages.train.support import deployment as proved

STAGE_OF = {"job": "job", "topology": "profile", "plan": "schedule", "deployment": "deploy"}


def write_request(folder: Path, job: Job, topology: Topology, plan: Plan, deployment: Deployment | None = None) -> Path:
    """Store the inputs below ``folder`` and write the request; its scratch folder is ``folder/work``."""
    store = open_store(f"file://{folder}/store", pipeline="test")
    documents: list[Document] = [job, topology, plan, deployment or proved(plan, topology)]
    inputs = {}
    for document in documents:
        writer = store.new_version(STAGE_OF[document.artifact], "v1")
        writer.put_document(document)
        now = datetime.now(UTC)
        inputs[document.artifact] = writer.commit(producer=Producer(
            hetrl="0", code_digest="", image_digest="", host="test", runner="process", run_id="", started_at=now, finished_at=now)).ref
    request = StageRequest(stage="train", store=f"file://{folder}/store", pipeline="test", version="v1", inputs=inputs,
                           workdir=str(folder / "work"))
    path = folder / "request.json"
    path.write_text(request.to_json(), encoding="utf-8")
    return path
