"""Everything that reads what somebody else wrote: a document of the store, a stage's line, a file of the user."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from artifacts.base import Document
from artifacts.invocation import parse_event
from artifacts.job import parse_job
from artifacts.manifest import LeaseRecord, Manifest
from artifacts.store.sealed import unseal
from artifacts.store.store import HistoryEntry
from artifacts.throughput import Throughput
from artifacts.yaml_text import read_yaml
from flows.lab.spec import parse_lab
from stages.profile.inventory.build import build, parse
from tests.artifacts import samples
from tests.artifacts.fuzz.mutate import as_bytes, as_json, mutate_text, mutate_tree

ROOT = Path(__file__).parents[3]
WHERE = "the.document"
MOST_MACHINES = 40
"""Of a mutated inventory: all pairs of machines get a link, which a thousand documents need not show."""


@dataclass(frozen=True)
class Reader:
    """``make``: a hostile text from a seed; ``read``: what reads it, and proves that what was read can be used."""

    make: Callable[[random.Random], Any]
    read: Callable[[Any], None]


def _document(kind: type[Document], good: Any) -> Reader:
    def make(rng: random.Random) -> bytes:
        text = as_json(mutate_tree(good, rng), rng) if rng.random() < 0.85 else mutate_text(json.dumps(good, indent=1), rng)
        return as_bytes(text, rng)

    def read(data: bytes) -> None:
        document = kind.from_json(data, where=WHERE)
        document.identity()
        assert kind.from_json(document.to_json(), where=WHERE) == document

    return Reader(make, read)


def _log(good: str) -> Reader:
    lines = [json.loads(line) for line in good.splitlines()]

    def make(rng: random.Random) -> bytes:
        if rng.random() < 0.85:
            texts = [json.dumps(line) for line in lines]
            at = rng.randrange(len(lines))
            texts[at] = as_json(mutate_tree(lines[at], rng), rng)
            text = "\n".join(texts) + "\n"
        else:
            text = mutate_text(good, rng)
        return as_bytes(text, rng)

    def read(data: bytes) -> None:
        log = Throughput.from_jsonl(data, where=WHERE)
        log.identity()
        assert Throughput.from_jsonl(log.to_jsonl(), where=WHERE) == log

    return Reader(make, read)


def _sealed(kind: type[Document], good: Any) -> Reader:
    """With a seal that is right: of somebody who may write to the store."""

    def make(rng: random.Random) -> bytes:
        tree = mutate_tree(good, rng)
        body = as_json(tree, rng) if rng.random() < 0.9 else mutate_text(json.dumps(good), rng)
        text = f'{body.rstrip()[:-1]}, "seal": "sha256:{"0" * 64}"\n}}\n'.encode("utf-8", "surrogatepass")
        return text[:-68] + hashlib.sha256(text).hexdigest().encode() + text[-4:]

    def read(data: bytes) -> None:
        unseal(data, kind, where=WHERE).identity()

    return Reader(make, read)


def _yaml(goods: list[str], parse_text: Callable[[str], Any]) -> Reader:
    trees = [yaml.safe_load(good) for good in goods]

    def make(rng: random.Random) -> str:
        at = rng.randrange(len(goods))
        if rng.random() < 0.5:
            return as_json(mutate_tree(trees[at], rng), rng).replace("NaN", ".nan").replace("Infinity", ".inf")
        return mutate_text(goods[at], rng)

    return Reader(make, parse_text)


def _read_job(text: str) -> None:
    job = parse_job(text, where=WHERE)
    job.identity()
    assert type(job).from_json(job.to_json(), where=WHERE) == job


def _read_inventory(text: str) -> None:
    inventory = parse(text, where=WHERE)
    if sum(item.count for item in inventory.machines) <= MOST_MACHINES:
        build(inventory, where=WHERE)


def _read_event(data: bytes) -> None:
    parse_event(data.decode("utf-8", "replace")).model_dump_json()


def _constrained() -> list[str]:
    job = yaml.safe_load((ROOT / "infra/jobs/tiny-grpo.yaml").read_text())
    constraints = {"pin": {"rollout": ["m0"]}, "forbid_regions": ["eu"], "keep_data_in": ["us"], "forbid_devices": ["m0.0"], "max_devices": 4,
                   "fix": {"actor_training": {"dp": 1, "tp": 2}}}
    return [yaml.safe_dump({"constraints": constraints, "name": job["name"], "models": job["models"], "batch": {"prompts": 4},
                            "prompt_tokens": job["prompt_tokens"], "response_tokens": job["response_tokens"]})]


def _files(pattern: str) -> list[str]:
    return [path.read_text() for path in sorted(ROOT.glob(pattern)) if "1024" not in path.name]


def readers() -> dict[str, Reader]:
    """By name. ``InputError`` and ``StoreError`` are the answers of a reader to what it cannot use."""
    documents = {d.artifact: d for d in samples.documents()}
    found = {name: _document(type(d), json.loads(d.to_json())) for name, d in documents.items() if not isinstance(d, Throughput)}
    history = HistoryEntry(stage="train", version="v1", published_at=samples.NOW)
    event = {"event": "outcome", "status": "ok", "version": "v1", "summary": {"a": 1.5, "b": ["c"]}, "details": {}}
    return found | {
        "throughput": _log(samples.throughput().to_jsonl()),
        "sealed manifest": _sealed(Manifest, json.loads(documents["manifest"].to_json())),
        "sealed lease": _sealed(LeaseRecord, json.loads(documents["lease"].to_json())),
        "sealed history": _sealed(HistoryEntry, json.loads(history.to_json())),
        "stage event": Reader(lambda rng: as_bytes(as_json(mutate_tree(event, rng), rng), rng), _read_event),
        "job YAML": _yaml(_files("infra/jobs/*.yaml"), _read_job),
        "constraints YAML": _yaml(_constrained(), _read_job),
        "cluster YAML": _yaml(_files("infra/clusters/*.yaml"), _read_inventory),
        "lab YAML": _yaml(_files("infra/lab/*.yaml"), lambda text: parse_lab(text, where=WHERE)),
        "--set value": _yaml(["16", "[a, b]", "{dp: 1, tp: 2}", "Qwen3-8B"], lambda text: read_yaml(text, where=WHERE)),
    }


