"""The commands of the documentation: in the pages' shell blocks, in their text, and in the comments of the files that ship."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

from tests.flows.commands import parses

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "infra/README.md", *(ROOT / "infra/docs").glob("*.md")])
COMMENTED = sorted([ROOT / "prefect.yaml", ROOT / "containers/Dockerfile", ROOT / "containers/flow.Dockerfile", *(ROOT / "infra").rglob("*.yaml")])
_PROGRAM = re.compile(r"(?:hetrl|python|prefect|make|docker|kubectl|pip|pip-audit|ray|sh|sed|sudo|apt-get) [^\s=]|[A-Z_]+=\S+ (?:hetrl|docker|python) ")
"""How text between backticks, or a comment, that is a command begins."""


def blocks(page: Path) -> list[str]:
    """The commands in the page's shell blocks: continued lines joined, comments and what only stands before a command taken off."""
    found = re.findall(r"^```(?:sh|bash)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [command for block in found for line in block.replace("\\\n", " ").splitlines() for command in _commands(line)]


def in_text(page: Path) -> list[str]:
    """Whole commands between backticks. ``hetrl schedule`` alone, or with … or a NAME for what to put there, is none."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]
    return [command for span in spans if _PROGRAM.match(span) and "…" not in span for command in _commands(span) if _whole(command)]


def in_comments(path: Path) -> list[str]:
    """Commands that stand alone on a line of a comment; what is said beside them is set off by three blanks."""
    lines = re.findall(r"^#\s+(\S.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [command for line in lines if _PROGRAM.match(line) for command in _commands(re.split(r"\s{3,}", line)[0])]


@cache
def everywhere() -> dict[str, list[str]]:
    """Command → where it is, blanks made one."""
    found: dict[str, list[str]] = {}
    for path in {*PAGES, *COMMENTED}:
        commands = [*blocks(path), *in_text(path)] if path.suffix == ".md" else in_comments(path)
        for command in commands:
            found.setdefault(" ".join(command.split()), []).append(str(path.relative_to(ROOT)))
    return dict(sorted(found.items()))


def _commands(line: str) -> list[str]:
    line = re.sub(r"(^|\s)#.*$", "", line).strip()
    parts = [re.sub(r"^(?:sudo (?:-E )?)?(?:env )?((?!export)[A-Z_0-9]+=(?:\"[^\"]*\"|\$\([^)]*\)|\S*)\s+)*", "", part).strip()
             for part in re.split(r"\s*(?:&&|;)\s+", line)]
    return [part for part in parts if part]


def _whole(command: str) -> bool:
    words = shlex.split(command)
    if any(re.fullmatch(r"[A-Z]{3,}|<.*", word) for word in words):
        return False
    return words[0] != "hetrl" or parses(words[1:]) == ""
