"""Versions: what makes a stage's result the same as an earlier one."""

from __future__ import annotations

from typing import Any

from artifacts.base import digest
from artifacts.manifest import Manifest, VersionRef
from artifacts.registry import DOCUMENTS
from artifacts.store import Store
from flows.graph import FILE

KEY_LENGTH = 20


def schema_digest() -> str:
    """Changes when the schema of any document does."""
    return digest({name: cls.model_fields["schema_version"].default for name, cls in DOCUMENTS.items()})


def input_identities(store: Store, inputs: dict[str, VersionRef]) -> dict[str, str]:
    """Artifact name → what it means. Two versions with one identity are the same input."""
    return {name: store.manifest(ref).files[FILE[name]].identity for name, ref in inputs.items()}


def version_key(*, stage: str, identities: dict[str, str], parameters: dict[str, Any], code_digest: str, image_digest: str) -> str:
    """Digest of everything a result depends on. ``TypeError`` on parameters JSON cannot hold: never a broader key."""
    return digest({"stage": stage, "inputs": identities, "parameters": parameters, "code": code_digest, "image": image_digest,
                   "schema": schema_digest()})[:KEY_LENGTH]


def committed_with_key(store: Store, stage: str, key: str) -> Manifest | None:
    """The newest committed version of that key. A forced rerun of a key is ``<key>.2``, ``<key>.3`` …"""
    matching = sorted((attempt_number(ref.version), ref.version) for ref in store.versions(stage) if ref.version.split(".")[0] == key)
    return store.find(stage, matching[-1][1]) if matching else None


def attempt_number(version: str) -> int:
    _, _, attempt = version.partition(".")
    return int(attempt) if attempt.isdigit() else 1


def next_version(store: Store, stage: str, key: str) -> str:
    """A version name for a new run of that key."""
    numbers = [attempt_number(ref.version) for ref in store.versions(stage) if ref.version.split(".")[0] == key]
    return f"{key}.{max(numbers) + 1}" if numbers else key
