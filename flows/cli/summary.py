"""The end of a run in the terminal: what was planned, what happened, how far off the prediction was, where to look."""

from __future__ import annotations

from rich.console import Console

from artifacts.base import Document
from artifacts.deployment import Deployment
from artifacts.job import Job
from artifacts.manifest import VersionRef
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.store import Store
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from artifacts.validation import Validation
from artifacts.views import terminal_summary
from flows.pipeline import Pipeline, StepResult

SHOWN: tuple[type[Document], ...] = (Job, Topology, Plan, Prediction, Deployment, Validation)


def print_summary(pipeline: Pipeline, results: list[StepResult], console: Console) -> None:
    """As much as this run knows; every document is read from the store, verified."""
    store = pipeline.store
    print_documents(store, pipeline.known, console)
    last = results[-1]
    manifest = store.find(last.stage, last.version)
    if manifest and "report.html" in manifest.files:
        folder = f"{store.url}/{store.pipeline}/{last.stage}/{last.version}"
        console.print(f"report     {folder}/{manifest.files['report.html'].key}", markup=False)
    console.print("look       hetrl artifacts ls   ·   hetrl artifacts lineage "
                  f"{last.stage}@{last.version[:8]}   ·   hetrl artifacts show {last.stage}", markup=False)


def print_documents(store: Store, known: dict[str, VersionRef], console: Console) -> None:
    documents: dict[str, Document] = {cls.artifact: store.read(known[cls.artifact], cls) for cls in SHOWN if cls.artifact in known}
    if "throughput" in known:
        ref = known["throughput"]
        documents["throughput"] = Throughput.from_jsonl(store.read_bytes(ref, "throughput.jsonl"), where=str(ref))
    if "plan" in documents:
        for line in terminal_summary(documents):
            console.print(line, markup=False)
