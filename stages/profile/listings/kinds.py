"""Which tool printed a text, told from the text itself."""

from __future__ import annotations

import json
import re
from typing import Literal

from artifacts.errors import InputError
from artifacts.yaml_text import read_yaml

Kind = Literal["nvidia-smi", "nvidia-smi topo", "amd-smi", "scontrol", "sinfo", "kubernetes", "inventory"]

KNOWN = ("nvidia-smi -q -x", "nvidia-smi topo -m", "amd-smi static --json", "scontrol show node", "sinfo with columns NODELIST and GRES",
         "kubectl get nodes -o json (or yaml)", "an inventory in YAML")


def kind_of(text: str) -> Kind | None:
    """None where it is none of those that are known."""
    start = text.lstrip("﻿ \t\r\n")
    if re.match(r"<\?xml|<!DOCTYPE|<!--|<nvidia_smi_log", start):
        return "nvidia-smi" if "<nvidia_smi_log" in start else None
    if re.search(r"^\s*NodeName=\S+", text, re.MULTILINE):
        return "scontrol"
    if re.search(r"^GPU0\s+X\b", re.sub(r"\x1b\[[0-9;]*m", "", text), re.MULTILINE):
        return "nvidia-smi topo"
    head = start.split("\n", 1)[0].upper().split()
    if "GRES" in head and ("NODELIST" in head or "HOSTNAMES" in head):
        return "sinfo"
    return _document(start)


def near_miss(text: str) -> tuple[str, str] | None:
    """What a text of no known kind is after all, and what to do instead; None where nothing better can be said."""
    start = text.lstrip("\ufeff \t\r\n")
    if not start:
        return "is empty", "give the output of a tool, or an inventory"
    if "\0" in text:
        return "is not plain text (UTF-16 without its mark?)", "save it as UTF-8"
    if "NVIDIA-SMI has failed" in start:
        return "is what nvidia-smi says where no driver runs", "print it on the machine with the GPUs"
    if "NVSMI LOG" in start or re.search(r"\|\s*NVIDIA-SMI \d", start):
        return "is what nvidia-smi prints for people", "give the output of nvidia-smi -q -x"
    if start[:1] in "[{":
        try:
            json.loads(start)
        except ValueError as error:
            return f"is not whole JSON ({error})", "give the whole output"
        except RecursionError:
            return "is JSON that is nested too deeply", "give the output of a tool as it was printed"
    return None


def _document(text: str) -> Kind | None:
    try:
        data = json.loads(text) if text[:1] in "[{" else read_yaml(text, where="the listing")
    except (ValueError, RecursionError, InputError):
        return None
    if isinstance(data, dict) and ("gpu_data" in data or "asic" in data):
        return "amd-smi"
    if isinstance(data, list) and data and all(isinstance(g, dict) and "asic" in g for g in data):
        return "amd-smi"
    if isinstance(data, dict) and data.get("kind") in ("List", "NodeList", "Node"):
        return "kubernetes"
    return "inventory" if isinstance(data, dict) and "machines" in data else None
