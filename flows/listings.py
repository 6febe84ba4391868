"""A fleet by what other tools print of it: files in a folder, or named in a YAML, as the parameters of the profile stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from artifacts.base import read_text
from artifacts.errors import InputError
from artifacts.yaml_text import read_yaml

DESCRIPTION = "fleet.yaml"
"""In a folder of listings: what no tool says (``name``, ``machines``, ``gpus``, ``types``, ``links``), and ``files``, if not all count."""


def from_folder(folder: Path) -> dict[str, Any]:
    """All files of the folder, but for hidden ones; with its description, where it has one. Raises :class:`InputError`."""
    description = folder / DESCRIPTION
    said = _mapping(read_text(description), description) if description.is_file() else {}
    if "files" in said:
        return from_description(said, description)
    names = sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith(".") and p.name != DESCRIPTION)
    if not names:
        raise InputError(f"folder {folder} holds no listing", fix="put into it what nvidia-smi -q -x, scontrol show node or kubectl print")
    return from_description({**said, "files": names}, description)


def from_description(said: dict[str, Any], where: Path) -> dict[str, Any]:
    """``files``: names of files beside ``where``, or ``{file: …, machine: …}``; the rest is the stage's to check."""
    files = said["files"]
    if not isinstance(files, list) or not files:
        raise InputError(f"{where}: files: a list of names is wanted", fix="write files: [nodes.txt, gpu01.xml]")
    name = said.get("name") or where.resolve().parent.name
    return {**said, "kind": "files", "name": name, "files": [_file(item, where) for item in files]}


def description_in(text: str) -> dict[str, Any] | None:
    """What a YAML says that names files of listings; None: the text is something else (an inventory, or a listing itself)."""
    try:
        data = read_yaml(text, where="the description")
    except InputError:
        return None
    return data if isinstance(data, dict) and "files" in data else None


def _file(item: Any, where: Path) -> dict[str, str]:
    item = {"file": item} if isinstance(item, str) else item
    if not isinstance(item, dict) or not isinstance(item.get("file"), str) or set(item) - {"file", "machine"}:
        raise InputError(f"{where}: files: {str(item)[:60]!r} is not a name",
                         fix="write a file's name, or {file: gpu01.xml, machine: gpu01}")
    folder = where.parent.resolve()
    path = (folder / item["file"]).resolve()
    if folder not in path.parents:
        raise InputError(f"{where}: files: {item['file']} is outside of its folder", fix="put the file beside it")
    return {"text": read_text(path), "where": item["file"]} | ({"machine": str(item["machine"])} if "machine" in item else {})


def _mapping(text: str, where: Path) -> dict[str, Any]:
    data = read_yaml(text, where=str(where))
    if not isinstance(data, dict):
        raise InputError(f"{where} holds {type(data).__name__}, not a description of a fleet",
                         fix="write machines:, gpus:, types: or links:")
    return data
