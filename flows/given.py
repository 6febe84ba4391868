"""Documents that somebody gives, as committed versions of the stages that make them: what a stage alone is run on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from artifacts.manifest import Producer, VersionRef
from artifacts.store import Store
from artifacts.version import hetrl_version
from flows.graph import FILE, MAKER


def put_given(store: Store, inputs: dict[str, Any]) -> dict[str, VersionRef]:
    """Artifact name → the version that now holds it."""
    refs: dict[str, VersionRef] = {}
    now = datetime.now(UTC)
    for maker in dict.fromkeys(MAKER[name] for name in inputs):
        writer = store.new_version(maker, "given")
        for name in (n for n in inputs if MAKER[n] == maker):
            if name == "throughput":
                writer.put_bytes(FILE[name], inputs[name].to_jsonl().encode())
            else:
                writer.put_document(inputs[name])
            refs[name] = VersionRef(stage=maker, version="given")
        writer.commit(inputs={}, context={}, parameters={}, summary={},
                      producer=Producer(hetrl=hetrl_version(), code_digest="", started_at=now, finished_at=now))
    return refs
