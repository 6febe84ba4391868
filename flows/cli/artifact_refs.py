"""What a person may write for a version or a document: ``schedule``, ``schedule@1f3a``, or a file's path."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from artifacts.base import read_text
from artifacts.errors import InputError
from artifacts.manifest import Manifest, VersionRef
from artifacts.registry import DOCUMENTS
from artifacts.store import Store

_HOW = "write stage, stage@version-prefix, or a file's path"
_LEAVES_MOST = 200_000


class Change(NamedTuple):
    """A leaf that differs; None stands for 'not there' (a JSON null is the text 'null')."""

    field: str
    before: str | None
    after: str | None


def is_path(text: str) -> bool:
    return "/" in text or text.endswith((".json", ".jsonl"))


def resolve(store: Store, text: str) -> VersionRef:
    """The version meant: of a bare stage the latest published one (else the newest), else the only one with that prefix."""
    stage, _, prefix = text.partition("@")
    versions = store.versions(stage)
    if not versions:
        there = ", ".join(store.stages()) or "nothing yet"
        raise InputError(f"there is no version of {stage!r} in {store.url}/{store.pipeline}", fix=f"it has: {there}; {_HOW}")
    if not prefix:
        return store.latest(stage) or versions[-1]
    found = [ref for ref in versions if ref.version.startswith(prefix)]
    exact = [ref for ref in found if ref.version == prefix]
    if len(found) == 1 or exact:
        return exact[0] if exact else found[0]
    if found:
        raise InputError(f"{text} fits {len(found)} versions", fix="write more of it: " + ", ".join(ref.version[:16] for ref in found[:5]))
    raise InputError(f"{text} is not in {store.url}/{store.pipeline}", fix="newest: " + ", ".join(str(ref) for ref in versions[-3:]))


def file_of(manifest: Manifest, wanted: str) -> str:
    """The file's name for ``plan``, ``plan.json`` or ``report``; ``InputError`` names those there are."""
    if wanted in manifest.files:
        return wanted
    found = [name for name in sorted(manifest.files) if name.split(".")[0] == wanted]
    if len(found) != 1:
        known = ", ".join(sorted(manifest.files)) or "no files"
        raise InputError(f"{manifest.ref} has no file {wanted!r}" if not found else f"{wanted!r} is not clear", fix=f"it has {known}")
    return found[0]


def structured_files(store: Store, text: str, file: str) -> dict[str, Any]:
    """File name → decoded JSON: of a path that file; of a version the one asked for, or all that are JSON."""
    if is_path(text):
        return {"": decode(Path(text).name, read_text(text))}
    manifest = store.manifest(resolve(store, text))
    names = [file_of(manifest, file)] if file else [name for name in sorted(manifest.files) if name.endswith((".json", ".jsonl"))]
    return {name: decode(name, store.read_bytes(manifest.ref, name)) for name in names}


def decode(name: str, text: str | bytes) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode()
        return [json.loads(line) for line in text.splitlines()] if name.endswith(".jsonl") else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}", fix="choose a .json or .jsonl file") from None


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Leaves that differ between two sets of files. Fields that do not change what a document means are left out."""
    old, new = _leaves_of_files(before), _leaves_of_files(after)
    names = list(dict.fromkeys([*old, *new]))
    return [Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _leaves_of_files(files: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, content in files.items():
        document = DOCUMENTS.get(name.split(".")[0])
        if document and isinstance(content, dict):
            content = {key: value for key, value in content.items() if key not in document.volatile}
        _leaves(content, name + ":" if len(files) > 1 else "", found)
    return found


def _leaves(value: Any, path: str, found: dict[str, str]) -> None:
    if len(found) > _LEAVES_MOST:
        raise InputError("the documents are too large to compare field by field", fix="choose one with --file")
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _leaves(item, f"{path}.{key}" if path and not path.endswith(":") else f"{path}{key}", found)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            _leaves(item, f"{path}[{number}]", found)
    else:
        found[path or "(all)"] = json.dumps(value, ensure_ascii=False)


def seconds_of(text: str) -> float:
    """``90s``, ``30m``, ``24h``, ``7d`` in seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])", text.strip())
    if not match:
        raise InputError(f"{text[:30]!r} is not a length of time", fix="write 90s, 30m, 24h or 7d")
    return float(match.group(1)) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match.group(2)]
