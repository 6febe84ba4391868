"""The end of a run in the terminal: what was planned, what happened, how far off the prediction was, where to look."""

from __future__ import annotations

from rich.console import Console

from artifacts.manifest import VersionRef
from artifacts.plan import Plan
from artifacts.prediction import Prediction
from artifacts.store import Store
from artifacts.throughput import Throughput
from artifacts.topology import Topology
from artifacts.validation import Validation
from artifacts.views import terminal_summary
from flows.graph import FILE
from flows.links import link
from flows.pipeline import Pipeline, StepResult


def print_summary(pipeline: Pipeline, results: list[StepResult], console: Console) -> None:
    """As much as this run knows; every document is read from the store, verified."""
    store, last = pipeline.store, results[-1]
    manifest = store.find(last.stage, last.version)
    look = {}
    if manifest and "report.html" in manifest.files:
        look["report"] = link(store, manifest, "report.html")
    look["look"] = f"hetrl report, hetrl artifacts ls, hetrl artifacts lineage {last.stage}@{last.version[:8]}"
    print_documents(store, pipeline.known, console, look=look)


def print_documents(store: Store, known: dict[str, VersionRef], console: Console, *, look: dict[str, str]) -> None:
    """The summary of the documents in ``known`` (artifact → version); without a plan only where to look."""
    if not {"topology", "plan", "prediction"} <= known.keys():
        for name, where in look.items():
            console.print(f"{name}: {where}", markup=False)
        return
    throughput = None
    if "throughput" in known:
        ref = known["throughput"]
        throughput = Throughput.from_jsonl(store.read_bytes(ref, FILE["throughput"]), where=str(ref))
    validation = store.read(known["validation"], Validation) if "validation" in known else None
    console.print(terminal_summary(store.read(known["topology"], Topology), store.read(known["plan"], Plan),
                                   store.read(known["prediction"], Prediction), throughput=throughput, validation=validation, look=look))
