"""The pages: their links, their index, what they say of errors and faults. Their commands are in test_documented_commands.py."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from artifacts.errors import ERRORS
from tests.documented import PAGES, ROOT


def exists(path: str) -> bool:
    return (ROOT / path).exists()


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "infra/docs/README.md").read_text()
    assert [page.name for page in (ROOT / "infra/docs").glob("*.md") if page.name != "README.md" and f"({page.name})" not in index] == []


def test_troubleshooting_has_every_kind_of_error_with_its_exit_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (yes|no) \|", (ROOT / "infra/docs/troubleshooting.md").read_text(), re.MULTILINE)
    assert {(kind, int(status), again == "yes") for kind, status, again in rows} == {(k, c.exit_status, c.retryable) for k, c in ERRORS.items()}


def functions_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_fault_is_injected_by_a_test_that_is_there() -> None:
    rows = re.findall(r"^\| (\d+) \| .* \| `([\w/.]+)::(\w+)` \|$", (ROOT / "infra/docs/faults.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 15
    assert len(rows) == len(re.findall(r"^\| \d+ \|", (ROOT / "infra/docs/faults.md").read_text(), re.MULTILINE))
    assert [f"{path}::{name}" for _, path, name in rows if not exists(path) or name not in functions_in(ROOT / path)] == []
