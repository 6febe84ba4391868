"""``hetrl doctor``: everything a run needs, one line each with the mend."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import typer
from rich.console import Console

from artifacts.errors import HetrlError
from artifacts.store import open_store
from artifacts.units import GIB, show_bytes
from flows.launch import make_runner
from flows.services import prefect
from flows.session import default_store

console = Console(stderr=True, soft_wrap=True, highlight=False)

ENGINE = {"torch": "2.13.0", "ray": "2.60.0", "verl": "0.9.1", "megatron-core": "0.16.1", "mbridge": "0.15.1"}


def doctor(gpu: bool = typer.Option(False, "--gpu", help="Also try, piece by piece, what the engine needs of GPUs (a minute); "
                                    "fail without an NVIDIA GPU that answers."),
           as_json: bool = typer.Option(False, "--json", help="One JSON object on the last line.")) -> None:
    """Check everything a run needs. Exit status 0 when the pipeline can run here with the process runner.

    ✓ is there, ✗ is missing and needed, · is missing and not needed for a plain run; after → what to type.

    Example: hetrl doctor --json
    """
    checks: list[tuple[str, Callable[[], tuple[bool | None, str, str]]]] = [
        ("python", _python), ("engine", _engine), ("memory", _memory), ("disk", _disk), ("shm", _shm), ("kernel", _kernel),
        ("store", _store), ("prefect", _prefect), ("docker", _docker), ("ray", _ray), ("gpu", _gpu)]
    results = {name: check() for name, check in checks}
    if gpu:
        if results["gpu"][0] is None:
            results["gpu"] = (False, *results["gpu"][1:])
        results |= _engine_on_gpus()
    for name, (ok, found, mend) in results.items():
        mark = {True: "✓", False: "✗", None: "·"}[ok]
        console.print(f"{mark} {name:8} {found}" + (f" → {mend}" if mend and ok is not True else ""), markup=False)
    if as_json:
        typer.echo(json.dumps({name: {"ok": ok, "found": found, "mend": mend} for name, (ok, found, mend) in results.items()}))
    if any(ok is False for ok, _, _ in results.values()):
        raise typer.Exit(1)


def _python() -> tuple[bool, str, str]:
    mend = "HetRL's engine is tried on Python 3.11: make a virtual environment of it"
    return sys.version_info[:2] == (3, 11), sys.version.split()[0], mend


def _engine() -> tuple[bool, str, str]:
    found: dict[str, str] = {}
    for name in ENGINE:
        try:
            found[name] = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    wrong = [f"{n} {found[n]} (needs {v})" for n, v in ENGINE.items() if found[n] != v]
    said = wrong or [f"{n} {v}" for n, v in found.items()]
    return not wrong, ", ".join(said), "pip install -c infra/constraints.txt '.[engine-cpu]'"


def _memory() -> tuple[bool, str, str]:
    free = psutil.virtual_memory().available
    return free > 4 * GIB, f"{show_bytes(free)} available", "the tiny job needs 4 GiB: close something"


def _disk() -> tuple[bool, str, str]:
    free = shutil.disk_usage(Path.cwd()).free
    return free > 2 * GIB, f"{show_bytes(free)} free here", "free some disk: checkpoints and the store need room"


def _shm() -> tuple[bool, str, str]:
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    return free > GIB // 2, f"{show_bytes(free)} of shared memory", "mount a larger /dev/shm (docker: --shm-size 2g)"


def _kernel() -> tuple[bool | None, str, str]:
    """Where Numba keeps the compiled cost kernel, as it chooses: NUMBA_CACHE_DIR, beside the source, or the user's cache."""
    beside = Path(__file__).parents[2] / "stages/schedule/cost/kernel"
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or (beside if os.access(beside, os.W_OK) else Path.home() / ".cache"))
    if folder.exists() and not os.access(folder, os.W_OK):
        return None, f"{folder} cannot be written: every plan compiles the cost kernel again", "set NUMBA_CACHE_DIR to another folder"
    compiled = any(folder.rglob("*.nbi")) if folder.exists() else False
    return True, f"the cost kernel is {'compiled' if compiled else 'compiled at the first plan'}, in {folder}", ""


def _store() -> tuple[bool, str, str]:
    try:
        url = default_store()
        open_store(url).stages()
    except HetrlError as error:
        return False, error.message, error.fix
    return True, url, ""


def _prefect() -> tuple[bool | None, str, str]:
    if prefect.healthy():
        return True, "a server answers", ""
    return None, "no server on the default port", "hetrl up (not needed for hetrl run)"


def _docker() -> tuple[bool | None, str, str]:
    try:
        make_runner("docker")
    except HetrlError as error:
        return None, error.message, f"{error.fix} (not needed for --runner process)"
    return True, "the engine answers", ""


def _ray() -> tuple[bool | None, str, str]:
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        return None, "no RAY_ADDRESS: a run starts Ray on this machine by itself", "for a live cluster: hetrl run --cluster ray://host:port"
    host, _, port = address.removeprefix("ray://").partition(":")
    try:
        socket.create_connection((host, int(port or 10001)), timeout=3).close()
    except (OSError, ValueError):
        return False, f"nothing answers at RAY_ADDRESS {address[:80]}", "start Ray there, or unset RAY_ADDRESS"
    return True, f"something answers at RAY_ADDRESS {address[:80]}", ""


def _gpu() -> tuple[bool | None, str, str]:
    if importlib.util.find_spec("pynvml") is None:
        return None, "no NVIDIA library", "pip install nvidia-ml-py on a machine with GPUs"
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return None, f"no NVIDIA driver ({error})", "not needed on a CPU"
    return True, f"{count} NVIDIA GPUs", ""


def _engine_on_gpus() -> dict[str, tuple[bool | None, str, str]]:
    """What the train stage finds of this machine's GPUs."""
    asked = subprocess.run([sys.executable, "-m", "stages.train.gpu_check"], capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in asked.stdout.splitlines() if line.startswith("{")]
    if not found:
        return {"gpu engine": (False, (asked.stderr.strip().splitlines() or ["no answer"])[-1], "pip install 'hetrl[engine-cuda]'")}
    return {f"gpu {check['name']}": (check["ok"], check["found"], check["mend"]) for check in found}
